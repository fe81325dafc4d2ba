"""One file per command or group of commands; loaded when the command is used."""
