"""Quire for Spark: the data source ``quire``.

import quire.spark

spark = quire.spark.session()
messages = spark.read.format("quire").option("store.url", "lmdb:///var/lib/quire").option("subscribe", "events").load()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.spark.data_source import QuireDataSource
    from quire.spark.sessions import register, session

__all__ = ["QuireDataSource", "register", "session"]

_PLACES = {
    "QuireDataSource": "quire.spark.data_source",
    "register": "quire.spark.sessions",
    "session": "quire.spark.sessions",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the command line lists its pipelines without Spark."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
