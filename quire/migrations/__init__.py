"""Steps between the formats of a store: numbered modules for LMDB, Alembic revisions of the same numbers for SQL.

A step is frozen: it has its own layout of both formats, and never changes once a version with it is out.
"""

from quire.migrations.runner import MigrationReport, migrate, prepare

__all__ = ["MigrationReport", "migrate", "prepare"]
