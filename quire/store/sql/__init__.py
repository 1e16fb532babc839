"""The SQL stores: one set of tables and statements, and what SQLite and PostgreSQL do differently."""
