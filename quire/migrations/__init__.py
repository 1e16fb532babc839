"""Steps between the formats of a store. A step is frozen: it has its own layout of both formats and never changes."""

from quire.migrations.runner import MigrationReport, migrate, prepare, warm_up

__all__ = ["MigrationReport", "migrate", "prepare", "warm_up"]
