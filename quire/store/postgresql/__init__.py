"""The PostgreSQL store: records in pages, one statement a commit, fenced by an epoch."""
