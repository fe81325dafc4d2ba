"""Namespaces, entries, the log of commits, and the functions that change them."""

from pathlib import Path

from alembic import op

revision = "r0001"
down_revision = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_name("r0001_entries.sql").read_text(encoding="utf-8"))
