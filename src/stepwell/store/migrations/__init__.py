"""The PostgreSQL schema, one file a version. SQL is written out; Alembic only keeps the order."""
