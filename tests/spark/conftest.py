"""One local Spark for all tests; where Java is missing, the tests that need it are skipped and say so."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import quire.spark
from quire.errors import UnsupportedEnvironment


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
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
