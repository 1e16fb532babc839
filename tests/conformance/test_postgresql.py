"""The SQL store on PostgreSQL passes the conformance suite."""

from pathlib import Path

import pytest

from quire.store.base import Store
from quire.store.sql.store import SqlStore
from quire.testing.store_suite import SharedStoreSuite
from tests.conftest import PostgresqlServer

DAMAGE = "UPDATE records SET content = 'X' || substr(content, 2) WHERE lane = %s AND sequence = %s"


class TestPostgresqlStore(SharedStoreSuite):
    examples = 10

    @pytest.fixture(autouse=True)
    def server(self, postgresql_server: PostgresqlServer) -> None:
        self._server = postgresql_server

    def make(self, place: Path) -> Store:
        return SqlStore(self._server.url_for(place))

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        with self._server.connect() as connection:
            connection.execute(f"SET search_path TO {self._server.schema_of(self._place)}")
            assert connection.execute(DAMAGE, (lane, sequence)).rowcount == 1
