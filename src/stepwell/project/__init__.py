"""Projects: a folder with a manifest and an executor."""
