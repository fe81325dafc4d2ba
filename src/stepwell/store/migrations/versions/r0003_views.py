"""Read-only views for dashboards and table editors."""

from pathlib import Path

from alembic import op

revision = "r0003"
down_revision = "r0002"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_name("r0003_views.sql").read_text(encoding="utf-8"))
