"""The steps of the SQL stores' format, as Alembic revisions."""
