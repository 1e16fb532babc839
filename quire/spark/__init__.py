"""Quire for Spark: the data source ``quire``.

import quire.spark

spark = quire.spark.session()
messages = spark.read.format("quire").option("store.url", "lmdb:///var/lib/quire").option("subscribe", "events").load()
"""

from quire.spark.data_source import QuireDataSource, register, session

__all__ = ["QuireDataSource", "register", "session"]
