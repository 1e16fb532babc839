"""The PostgreSQL store passes the conformance suite."""

from contextlib import closing
from pathlib import Path

import pytest

from quire.migrations import prepare
from quire.store.base import Store
from quire.store.maintenance.open_store import open_for_reading
from quire.store.postgresql.store import PostgresqlStore
from quire.store.urls import store_exists, store_for_url
from quire.testing.faults import tear
from quire.testing.store_suite import KEYS, SharedStoreSuite, fill, keys, set_marks
from tests.postgresql_server import PostgresqlServer


class TestPostgresqlStore(SharedStoreSuite):
    examples = 10

    @pytest.fixture(autouse=True)
    def server(self, postgresql_server: PostgresqlServer) -> None:
        self._server = postgresql_server

    def make(self, place: Path) -> Store:
        return PostgresqlStore(self._server.url_for(place))

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        tear(store, lane, sequence)

    def break_down(self, store: Store) -> None:
        """Drop the tables."""
        with self._server.connect() as connection:
            connection.execute(f"DROP SCHEMA {self._server.schema_of(self._place)} CASCADE")

    def test_marks_are_in_the_order_of_bytes_whatever_the_database_sorts_by(self, store: Store) -> None:
        with self._server.connect() as connection:
            if not connection.execute("SELECT FROM pg_collation WHERE collname = 'en-x-icu'").rowcount:
                pytest.skip("this PostgreSQL was built without ICU: it has no collation en-x-icu")
            connection.execute(f"SET search_path TO {self._server.schema_of(self._place)}")
            connection.execute('ALTER TABLE marks ALTER COLUMN key TYPE text COLLATE "en-x-icu"')
            set_marks(store, dict.fromkeys(KEYS, b"x"))
            by_language = [key for (key,) in connection.execute("SELECT key FROM marks ORDER BY key")]
        assert keys(store.marks("")) == KEYS != by_language
        assert keys(store.marks("sub/a")) == ["sub/a", "sub/a b"]

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_url_may_begin_with_any_name_of_postgresql(self, scheme: str, tmp_path: Path) -> None:
        url = scheme + self._server.url_for(tmp_path).removeprefix("postgresql+psycopg")
        assert not store_exists(url)
        with closing(store_for_url(url)) as store:
            store.open()
            fill(store, 1, 3)
        assert store_exists(url)
        assert prepare(url) is None
        with open_for_reading(url) as opened:
            assert opened.store.lane_state(1).count == 3
            assert opened.maintenance.lanes() == [1]

    def test_the_right_to_create_in_its_schema_is_enough(self, tmp_path: Path) -> None:
        url = self._server.url_for(tmp_path)
        schema = self._server.schema_of(tmp_path)
        with self._server.connect() as connection:
            connection.execute(f"CREATE ROLE app_{schema} LOGIN")
            connection.execute(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO app_{schema}")
        place = url.partition("&options")[0].replace("//quire@", f"//app_{schema}@")
        with closing(store_for_url(f"{place}&schema={schema}")) as store:
            assert store.try_lock("app")
            store.open()
            fill(store, 1, 3)
            assert store.lane_state(1).count == 3
