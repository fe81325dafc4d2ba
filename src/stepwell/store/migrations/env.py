"""What Alembic runs: the migrations on the connection that `stepwell.store.postgres_schema` opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table_schema="stepwell")
with context.begin_transaction():
    context.run_migrations()
