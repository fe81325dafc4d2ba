"""Migrations in order: `rNNNN_what.py`."""
