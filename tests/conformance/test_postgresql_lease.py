"""The lease of a PostgreSQL store, its connections, and what they do when the server fails."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from quire.clock import ManualClock, SystemClock
from quire.errors import StoreCorrupt, StoreFull, StoreLocked, StoreUnreachable
from quire.store.base import LaneState, Sync, WriteBatch
from quire.store.sql.postgresql import COMMIT_TRIES, LEASE_SECONDS, Postgresql
from quire.store.sql.store import SqlStore
from quire.testing.store_case import PLENTY, append, fill, sequences
from quire.testing.store_model import make_message
from tests.postgresql_server import PostgresqlServer

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


class Brokers:
    """Two stores on one database, and a way past them."""

    def __init__(self, server: PostgresqlServer, place: Path) -> None:
        self.clock = ManualClock()
        self.url = server.url_for(place)
        self.first = SqlStore(self.url, clock=self.clock)
        self.second = SqlStore(self.url)
        self._server = server
        self._schema = server.schema_of(place)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement behind the stores' back."""
        with self._server.connect() as connection:
            connection.execute(f"SET search_path TO {self._schema}")
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def brokers(postgresql_server: PostgresqlServer, tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(postgresql_server, tmp_path)
    brokers.first.open()
    brokers.second.open()
    yield brokers
    brokers.first.close()
    brokers.second.close()


def test_standby_takes_over_when_the_lease_has_run_out(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    assert not brokers.second.try_lock("second")
    brokers.execute("UPDATE lease SET expires = expires - 11")
    assert brokers.second.lock_owner() == ""
    assert brokers.second.try_lock("second")
    assert brokers.second.lock_owner() == "second"
    assert not brokers.first.check_lock()


def test_broker_that_lost_its_lease_cannot_write(brokers: Brokers) -> None:
    """Even before it has noticed: a process that was stopped for a while and goes on."""
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    brokers.execute("UPDATE lease SET expires = 0")
    append(brokers.first, 1, make_message(3))  # nobody has taken it
    assert brokers.second.try_lock("second")
    with pytest.raises(StoreLocked):
        append(brokers.first, 1, make_message(4))
    assert brokers.second.lane_state(1) == LaneState(1, 3, 3, 120, 4)
    append(brokers.second, 1, make_message(4))


def test_lease_is_renewed(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    brokers.execute("UPDATE lease SET expires = 1")
    assert brokers.first.check_lock()
    ((left,),) = brokers.execute("SELECT expires - extract(epoch FROM clock_timestamp())::float8 FROM lease")
    assert isinstance(left, float)
    assert LEASE_SECONDS - 5 < left <= LEASE_SECONDS


def test_lease_lasts_its_time_while_the_server_does_not_answer(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    brokers.execute("ALTER TABLE lease RENAME TO hidden")
    brokers.clock.advance(LEASE_SECONDS - 1)
    assert brokers.first.check_lock()
    brokers.clock.advance(1)
    assert not brokers.first.check_lock()
    brokers.execute("ALTER TABLE hidden RENAME TO lease")
    assert brokers.first.check_lock()


def test_brokers_may_meet_a_new_database_together(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    """One gets the lock, and each finds the tables, whoever made them."""
    url = postgresql_server.url_for(tmp_path)
    stores = [SqlStore(url) for _ in range(4)]
    together = threading.Barrier(len(stores), timeout=10)
    locked = []

    def start(store: SqlStore) -> None:
        together.wait()
        locked.append(store.try_lock("one of them"))
        together.wait()
        store.open()

    threads = [threading.Thread(target=start, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(locked) == [False, False, False, True]
    assert [store.lane_state(1) for store in stores] == [LaneState()] * 4
    for store in stores:
        store.close()


def test_lost_connections_are_replaced(brokers: Brokers) -> None:
    fill(brokers.first, 1, 2)
    brokers.execute(CUT)
    append(brokers.first, 1, make_message(3))
    brokers.execute(CUT)
    assert sequences(brokers.first.page(1, 1, PLENTY, 9)) == [1, 2, 3]
    brokers.execute(CUT)
    brokers.first.sync()


def cut_at_commit(brokers: Brokers, *, made: bool, times: int = 1) -> list[int]:
    """Lose the connection in commits of the first store, after the server has made them or before it does.

    Returns:
        The process numbers of the connections that were lost.
    """
    lost: list[int] = []
    right, written = brokers.first._batches.write, []

    def write(connection: Connection, batch: WriteBatch) -> None:
        right(connection, batch)
        written.append(connection)

    def committing(connection: Connection) -> None:
        if not written or len(lost) == times:
            return
        written.clear()
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        lost.append(driver.info.backend_pid)
        if made:
            driver.commit()
        brokers.execute(f"SELECT pg_terminate_backend({lost[-1]})")
        if made:  # the driver knows that there is nothing left to commit, and would not ask
            raise OperationalError("COMMIT", None, psycopg.OperationalError("the connection is closed"))

    brokers.first._batches.write = write  # type: ignore[method-assign]
    event.listen(brokers.first.backend.writer, "commit", committing)
    return lost


@pytest.mark.parametrize("made", [False, True])
def test_commit_whose_connection_is_lost_is_made_once(brokers: Brokers, made: bool) -> None:
    """Whether the server had made it or not: it is asked."""
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    lost = cut_at_commit(brokers, made=made)
    append(brokers.first, 1, make_message(3))
    assert len(lost) == 1
    append(brokers.first, 1, make_message(4))
    assert brokers.first.lane_state(1) == LaneState(1, 4, 4, 160, 5)
    assert brokers.first.check_lock()


def test_without_a_lease_a_commit_whose_connection_is_lost_stays_open(brokers: Brokers) -> None:
    fill(brokers.first, 1, 2)
    cut_at_commit(brokers, made=True)
    with pytest.raises(StoreUnreachable):
        append(brokers.first, 1, make_message(3))
    assert brokers.first.lane_state(1).count == 3


def test_commit_that_meets_lost_connections_only_fails_and_nothing_is_stored(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    lost = cut_at_commit(brokers, made=False, times=COMMIT_TRIES)
    with pytest.raises(StoreUnreachable):
        fill(brokers.first, 1, 2)
    assert len(set(lost)) == COMMIT_TRIES
    assert brokers.first.lane_state(1) == LaneState()
    fill(brokers.first, 1, 2)
    assert brokers.first.lane_state(1).count == 2


def test_server_that_has_lost_commits_is_written_no_more(brokers: Brokers) -> None:
    """After a failover to a replica that was behind, what the broker knows is not what is stored."""
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    append(brokers.first, 1, make_message(3))
    brokers.execute('UPDATE lease SET "commit" = "commit" - 1')
    with pytest.raises(StoreCorrupt, match="1 of the 2 commits"):
        append(brokers.first, 1, make_message(4))
    assert not brokers.first.check_lock()


def test_table_of_an_earlier_version_is_extended(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    brokers.first.unlock()
    brokers.execute('ALTER TABLE lease DROP COLUMN "commit"')
    assert brokers.second.try_lock("second")
    fill(brokers.second, 1, 2)


def test_full_disk(brokers: Brokers) -> None:
    """The server reports a full disk as error 53100; here a trigger does."""
    brokers.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    )
    brokers.execute("CREATE TRIGGER fail BEFORE INSERT ON records EXECUTE FUNCTION fail()")
    with pytest.raises(StoreFull):
        fill(brokers.first, 1, 1)
    assert brokers.first.lane_state(1) == LaneState()


def test_unreachable_server_is_told_without_the_password() -> None:
    store = SqlStore("postgresql+psycopg://quire:secret@127.0.0.1:1/quire")
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1") as caught:
        store.open()
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.data)


def test_lock_of_an_unreachable_server_cannot_be_taken() -> None:
    store = SqlStore("postgresql+psycopg://quire@127.0.0.1:1/quire")
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1") as caught:
        store.try_lock("one of them")
    assert str(caught.value).isprintable()


def test_close_leaves_the_lease_to_run_out_when_the_server_is_away(brokers: Brokers) -> None:
    assert brokers.first.try_lock("one of them")
    brokers.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    brokers.first.close()
    assert brokers.execute("SELECT owner FROM lease") == [("one of them",)]


@pytest.mark.parametrize(("sync", "shown"), [(Sync.ALWAYS, "on"), (Sync.INTERVAL, "off"), (Sync.NEVER, "off")])
def test_sync_setting(brokers: Brokers, sync: Sync, shown: str) -> None:
    backend = Postgresql(brokers.url, sync, SystemClock())
    with backend.writer.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == shown
    backend.writer.dispose()


def test_sync_puts_earlier_commits_on_disk(brokers: Brokers) -> None:
    """The server's flushed position passes the commit that did not wait."""
    store = SqlStore(brokers.url, Sync.NEVER)
    store.open()
    fill(store, 1, 100)
    ((written,),) = brokers.execute("SELECT pg_current_wal_insert_lsn()")
    store.sync()
    assert brokers.execute(f"SELECT pg_current_wal_flush_lsn() >= '{written}'") == [(True,)]
    store.close()
