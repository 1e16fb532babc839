"""Fixtures that tests of several directories share: a private PostgreSQL server."""

from collections.abc import Iterator

import pytest

from tests.postgresql_server import NoServer, PostgresqlServer, run_server

pytest.register_assert_rewrite("quire.testing")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A running server; the tests that need it are skipped, and say why, where there can be none."""
    try:
        with run_server() as server:
            yield server
    except NoServer as error:
        pytest.skip(str(error))
