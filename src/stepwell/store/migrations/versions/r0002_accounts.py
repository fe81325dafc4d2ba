"""Users, tokens, projects and memberships."""

from pathlib import Path

from alembic import op

revision = "r0002"
down_revision = "r0001"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_name("r0002_accounts.sql").read_text(encoding="utf-8"))
