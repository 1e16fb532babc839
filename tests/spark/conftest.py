"""One local Spark for all tests; where Java is missing, the tests that need it are skipped and say so."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import quire.spark
from quire.errors import UnsupportedEnvironment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, one of them has Spark: its start takes long, and much memory."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with the data source registered, stopped behind the last test."""
    try:
        session = quire.spark.session(
            memory="512m",
            spark__ui__enabled="false",
            spark__ui__showConsoleProgress="false",
            spark__sql__shuffle__partitions="2",
        )
    except UnsupportedEnvironment as error:
        pytest.skip(str(error))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
