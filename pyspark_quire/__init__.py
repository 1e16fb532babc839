"""Where Spark finds the data source ``quire`` by itself: it looks through packages whose names begin so."""

from quire.spark.data_source import QuireDataSource as DefaultSource

__all__ = ["DefaultSource"]
