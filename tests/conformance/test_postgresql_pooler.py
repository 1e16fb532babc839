"""The PostgreSQL store behind PgBouncer: session and transaction pooling do, statement pooling is refused."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quire.errors import StoreError, StoreLocked, StoreUnreachable
from quire.store.base import LaneState, Store, StoredDestination, WriteBatch
from quire.store.maintenance.open_store import open_for_reading
from quire.store.maintenance.verify import verify
from quire.store.postgresql import ownership
from quire.store.postgresql.database import is_pooled
from quire.store.postgresql.store import PostgresqlStore
from quire.testing.faults import tear
from quire.testing.store_model import make_message
from quire.testing.store_suite import SharedStoreSuite, append, fill
from tests.postgresql_pooler import PostgresqlPooler, run_pooler
from tests.postgresql_server import NoServer, PostgresqlServer

pytestmark = pytest.mark.slow

RUN_OUT = "UPDATE owner SET expires = clock_timestamp() - interval '1 s'"
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


@pytest.fixture(scope="module", params=["session", "transaction"])
def pooler(request: pytest.FixtureRequest, postgresql_server: PostgresqlServer) -> Iterator[PostgresqlPooler]:
    """A pooler of each kind that does."""
    try:
        with run_pooler(postgresql_server, request.param) as pooler:
            yield pooler
    except NoServer as error:
        pytest.skip(str(error))


@pytest.fixture
def statement_pooler(postgresql_server: PostgresqlServer) -> Iterator[PostgresqlPooler]:
    try:
        with run_pooler(postgresql_server, "statement") as pooler:
            yield pooler
    except NoServer as error:
        pytest.skip(str(error))


class TestPooledStore(SharedStoreSuite):
    examples = 3

    @pytest.fixture(autouse=True)
    def servers(self, postgresql_server: PostgresqlServer, pooler: PostgresqlPooler) -> None:
        self._server = postgresql_server
        self._pooler = pooler

    def make(self, place: Path) -> Store:
        return PostgresqlStore(self._pooler.url_for(self._server.schema_of(place)))

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        tear(store, lane, sequence)

    def break_down(self, store: Store) -> None:
        """Drop the tables."""
        with self._server.connect() as connection:
            connection.execute(f"DROP SCHEMA {self._server.schema_of(self._place)} CASCADE")


class Pooled:
    """Two stores behind a pooler, and a way past them."""

    def __init__(self, server: PostgresqlServer, pooler: PostgresqlPooler, place: Path) -> None:
        self._server = server
        self.schema = server.schema_of(place)
        self.url = pooler.url_for(self.schema)
        self.first, self.second = PostgresqlStore(self.url), PostgresqlStore(self.url)

    def execute(self, statement: str) -> None:
        """Run a statement behind the stores' back."""
        with self._server.connect() as connection:
            connection.execute(f"SET search_path TO {self.schema}")
            connection.execute(statement)


@pytest.fixture
def pooled(
    postgresql_server: PostgresqlServer, pooler: PostgresqlPooler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pooled]:
    monkeypatch.setattr(ownership, "_SERVER_HAS_RUN", "true")
    stores = Pooled(postgresql_server, pooler, tmp_path)
    assert stores.first.try_lock("first")
    stores.first.open()
    stores.second.open()
    fill(stores.first, 1, 2)
    yield stores
    stores.first.close()
    stores.second.close()


def test_pooler_is_noticed(pooled: Pooled, postgresql_server: PostgresqlServer) -> None:
    assert is_pooled(pooled.first._ownership.writer)
    with postgresql_server.connect() as direct:
        assert not is_pooled(direct)


def test_broker_that_was_replaced_cannot_write(pooled: Pooled) -> None:
    assert not pooled.second.try_lock("second")
    assert pooled.first.check_lock()
    pooled.execute(RUN_OUT)
    assert pooled.second.try_lock("second")
    append(pooled.second, 1, make_message(3))
    for _ in range(2):
        with pytest.raises(StoreLocked):
            append(pooled.first, 1, make_message(3))
    assert not pooled.first.check_lock()
    assert pooled.second.lane_state(1) == LaneState(1, 3, 3, 120, 4)


def test_server_connections_that_are_lost_are_replaced(pooled: Pooled) -> None:
    for number in (3, 4, 5):
        pooled.execute(CUT)
        append(pooled.first, 1, make_message(number))
    pooled.execute(CUT)
    time.sleep(0.2)  # the pooler gives lost connections to new clients until it notices
    assert pooled.first.lane_state(1) == LaneState(1, 5, 5, 200, 6)
    assert pooled.first.check_lock()


def test_maintenance_works_through_a_pooler(pooled: Pooled) -> None:
    pooled.first.apply(WriteBatch(destinations={1: StoredDestination(1, "queue", "orders", {}, (1,))}))
    with open_for_reading(pooled.url) as opened:
        assert list(verify(opened.store, opened.maintenance)) == []


def test_settings_of_a_session_are_refused_by_the_pooler_with_a_reason(pooled: Pooled) -> None:
    store = PostgresqlStore(f"{pooled.url}&options=-cjit%3Doff")
    with pytest.raises(StoreUnreachable, match="unsupported startup parameter: options"):
        store.open()


def test_statement_pooling_is_refused(statement_pooler: PostgresqlPooler) -> None:
    """Not as a server that is away: a standby would wait for it forever."""
    with closing(PostgresqlStore(statement_pooler.url_for("statements"))) as store:
        for call in (store.open, lambda: store.try_lock("one of them")):
            with pytest.raises(StoreError, match="use session or transaction pooling") as caught:
                call()
            assert type(caught.value) is StoreError
