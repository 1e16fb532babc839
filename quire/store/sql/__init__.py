"""The SQLite store: a row for each record and each link, through SQLAlchemy."""
