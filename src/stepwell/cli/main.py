"""The `stepwell` program's first lines: answer what needs nothing, load the rest when it is needed."""

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from stepwell import __version__

        sys.stdout.write(f"stepwell {__version__}\n")
        return 0
    from stepwell.cli.app import run

    return run(arguments)
