"""Fixtures that tests of several directories share: a private PostgreSQL server."""

import gc
import os
from collections.abc import Iterator

import pytest

from tests.postgresql_server import NoServer, PostgresqlServer, run_server

pytest.register_assert_rewrite("quire.testing")

# Hundreds of tests start a broker. Those that are about its console say that it is to have one.
os.environ["QUIRE_CONSOLE__ENABLED"] = "false"


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no full garbage collection of any test looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A running server; the tests that need it are skipped, and say why, where there can be none."""
    try:
        with run_server() as server:
            yield server
    except NoServer as error:
        pytest.skip(str(error))
