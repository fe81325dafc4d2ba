"""The server: the HTTP API on PostgreSQL, users and roles."""
