"""Who may write to a PostgreSQL store, its connections, and what they do when the server fails."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from quire.clock import ManualClock
from quire.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreUnreachable
from quire.store.base import LaneState, Sync
from quire.store.postgresql import ownership
from quire.store.postgresql.commit import COMMIT_TRIES, Change
from quire.store.postgresql.ownership import LEASE_SECONDS
from quire.store.postgresql.store import PostgresqlStore
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, append, fill, sequences
from tests.postgresql_server import PostgresqlServer

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
RUN_OUT = "UPDATE owner SET expires = clock_timestamp() - interval '1 s'"


class Brokers:
    """Two stores on one database, and a way past them."""

    def __init__(self, server: PostgresqlServer, place: Path) -> None:
        self.clock = ManualClock()
        self.url = server.url_for(place)
        self.first = PostgresqlStore(self.url, clock=self.clock)
        self.second = PostgresqlStore(self.url)
        self._server = server
        self.schema = server.schema_of(place)

    def connect(self) -> psycopg.Connection:
        """A connection of somebody else."""
        connection = self._server.connect()
        connection.execute(f"SET search_path TO {self.schema}")
        return connection

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement behind the stores' back."""
        with self.connect() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def brokers(postgresql_server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    monkeypatch.setattr(ownership, "_PAUSE", 0.0)
    monkeypatch.setattr(ownership, "_SERVER_HAS_RUN", "true")
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
    brokers.execute(RUN_OUT)
    assert brokers.second.lock_owner() == ""
    assert brokers.second.try_lock("second")
    assert brokers.second.lock_owner() == "second"
    assert not brokers.first.check_lock()


def test_lease_of_a_dead_process_of_this_machine_is_not_waited_for(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert brokers.first.try_lock("first")
    assert not brokers.second.try_lock("second")  # it lives
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(os, "getpid", lambda: process.pid)
        brokers.execute(f"UPDATE owner SET process = '{ownership.own_process()}'")
        monkeypatch.undo()
        assert not brokers.second.try_lock("second")
        process.kill()
    assert brokers.second.try_lock("second")
    assert brokers.second.lock_owner() == "second"
    with pytest.raises(StoreLocked):
        append(brokers.first, 1, make_message(1))


def test_broker_that_lost_its_lease_cannot_write(brokers: Brokers) -> None:
    """Even before it has noticed: a process that was stopped for a while and goes on."""
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    brokers.execute(RUN_OUT)
    append(brokers.first, 1, make_message(3))  # nobody has taken it
    assert brokers.second.try_lock("second")
    for _ in range(2):
        with pytest.raises(StoreLocked):
            append(brokers.first, 1, make_message(4))
    assert brokers.second.lane_state(1) == LaneState(1, 3, 3, 120, 4)
    append(brokers.second, 1, make_message(4))
    brokers.second.unlock()
    assert brokers.first.try_lock("first")
    append(brokers.first, 1, make_message(5))
    assert sequences(brokers.first.page(1, 1, PLENTY, 9)) == [1, 2, 3, 4, 5]


def test_who_has_no_lock_writes_only_while_there_is_no_owner(brokers: Brokers) -> None:
    fill(brokers.first, 1, 2)
    append(brokers.second, 1, make_message(3))
    with pytest.raises(StoreLocked):  # what it knows of the lane is old
        append(brokers.first, 1, make_message(3))
    assert brokers.second.try_lock("second")
    third = PostgresqlStore(brokers.url)
    third.open()
    with pytest.raises(StoreLocked, match="second"):
        append(third, 1, make_message(4))
    third.close()
    assert brokers.second.lane_state(1).count == 3


def test_lease_is_renewed(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    brokers.execute(RUN_OUT)
    brokers.clock.advance(100)
    assert brokers.first.check_lock()
    assert brokers.first.lock_until() == brokers.clock.monotonic() + LEASE_SECONDS
    ((left,),) = brokers.execute("SELECT extract(epoch FROM expires - clock_timestamp())::float8 FROM owner")
    assert isinstance(left, float)
    assert LEASE_SECONDS - 2 < left <= LEASE_SECONDS


def test_nobody_knows_whose_the_lock_is_while_the_server_does_not_answer(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    ends = brokers.first.lock_until()
    brokers.execute("ALTER TABLE owner RENAME TO hidden")
    brokers.clock.advance(1)
    with pytest.raises(StoreError):
        brokers.first.check_lock()
    assert brokers.first.lock_until() == ends
    brokers.execute("ALTER TABLE hidden RENAME TO owner")
    brokers.clock.advance(100)
    assert brokers.first.check_lock()


def test_stopped_owner_that_has_the_row_is_cut_off(brokers: Brokers) -> None:
    """A process that was stopped in the middle of a commit keeps the row locked for as long as its connection lasts."""
    assert brokers.first.try_lock("first")
    brokers.execute(RUN_OUT)
    with brokers.connect() as stopped:
        stopped.execute('BEGIN; UPDATE owner SET "commit" = "commit" + 1')
        assert brokers.second.try_lock("second")
        with pytest.raises(psycopg.OperationalError):
            stopped.execute("COMMIT")
    fill(brokers.second, 1, 1)


def test_connection_of_the_owner_before_is_ended(brokers: Brokers) -> None:
    assert brokers.first.try_lock("first")
    connection = brokers.first._ownership.writer
    brokers.execute(RUN_OUT)
    assert brokers.second.try_lock("second")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_standby_that_was_cut_off_gives_the_owner_its_time(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it reaches the server again, the owner may be about to. A released lock it takes at once."""
    assert brokers.second.try_lock("owner")
    assert not brokers.first.try_lock("standby")
    with monkeypatch.context() as cut_off:
        cut_off.setattr(brokers.first._ownership, "_connection", None)
        cut_off.setattr(brokers.first.database, "conninfo", "host=/nowhere")
        with pytest.raises(StoreUnreachable):
            brokers.first.try_lock("standby")
    brokers.execute(RUN_OUT)
    assert not brokers.first.try_lock("standby")
    brokers.clock.advance(LEASE_SECONDS / 2)
    assert not brokers.first.try_lock("standby")
    brokers.clock.advance(LEASE_SECONDS / 2)
    assert brokers.first.try_lock("standby")


def test_server_that_has_just_started_gives_the_owner_its_time(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_SERVER_HAS_RUN", "pg_postmaster_start_time() < clock_timestamp() - interval '1 d'")
    assert brokers.first.try_lock("first")
    brokers.execute(RUN_OUT)
    assert not brokers.second.try_lock("second")
    brokers.first.unlock()
    assert brokers.second.try_lock("second")


def test_new_broker_waits_for_one_of_an_earlier_version(brokers: Brokers) -> None:
    brokers.execute("DROP TABLE IF EXISTS owner")
    brokers.execute("CREATE TABLE lease (owner text, expires double precision)")
    brokers.execute("INSERT INTO lease VALUES ('old', extract(epoch FROM clock_timestamp()) + 9)")
    assert not brokers.first.try_lock("new")
    assert brokers.first.lock_owner() == "old"
    brokers.execute("UPDATE lease SET expires = 0")
    assert brokers.first.try_lock("new")


def test_brokers_may_meet_a_new_database_together(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    """One gets the lock, and each finds the tables, whoever made them. Here the schema is new too."""
    schema = "of_" + postgresql_server.schema_of(tmp_path)
    url = f"{postgresql_server.url_for(tmp_path)}&schema={schema}"
    stores = [PostgresqlStore(url) for _ in range(4)]
    together = threading.Barrier(len(stores), timeout=10)
    locked = []

    def start(store: PostgresqlStore) -> None:
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


def test_stores_in_different_schemas_do_not_notice_each_other(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    own = postgresql_server.schema_of(tmp_path)
    stores = [PostgresqlStore(f"{postgresql_server.url_for(tmp_path)}&schema={own}_{n}") for n in (1, 2)]
    for number, store in enumerate(stores, 1):
        store.open()
        assert store.try_lock(f"owner {number}")
        fill(store, 1, number)
    assert [store.lane_state(1).count for store in stores] == [1, 2]
    assert [store.lock_owner() for store in stores] == ["owner 1", "owner 2"]
    for store in stores:
        store.close()


def test_lost_connections_are_replaced(brokers: Brokers) -> None:
    fill(brokers.first, 1, 2)
    brokers.execute(CUT)
    append(brokers.first, 1, make_message(3))
    brokers.execute(CUT)
    append(brokers.first, 2, make_message(1))  # it reads the lane before it commits
    brokers.execute(CUT)
    assert sequences(brokers.first.page(1, 1, PLENTY, 9)) == [1, 2, 3]
    brokers.execute(CUT)
    with brokers.first.snapshot() as reader:
        assert reader.lane_state(1).count == 3
    brokers.execute(CUT)
    brokers.first.sync()


def cut_at_commit(brokers: Brokers, *, made: bool, times: int = 1) -> list[int]:
    """Lose the connection in commits of the first store, after the server has made them or before it does.

    Returns:
        The process numbers of the connections that were lost.
    """
    lost: list[int] = []
    committer = brokers.first._committer
    right = committer._execute

    def execute(connection: psycopg.Connection, number: int, change: Change) -> None:
        if len(lost) == times:
            right(connection, number, change)
            return
        lost.append(connection.info.backend_pid)
        if made:
            right(connection, number, change)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")
        brokers.execute(f"SELECT pg_terminate_backend({lost[-1]})")
        right(connection, number, change)

    committer._execute = execute  # type: ignore[method-assign]
    return lost


@pytest.mark.parametrize("is_locked", [False, True])
@pytest.mark.parametrize("made", [False, True])
def test_commit_whose_connection_is_lost_is_made_once(brokers: Brokers, made: bool, is_locked: bool) -> None:
    """Whether the server had made it or not: it is asked."""
    assert not is_locked or brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    lost = cut_at_commit(brokers, made=made)
    append(brokers.first, 1, make_message(3))
    assert len(lost) == 1
    append(brokers.first, 1, make_message(4))
    assert brokers.first.lane_state(1) == LaneState(1, 4, 4, 160, 5)
    assert brokers.first.check_lock() == is_locked


def test_commit_that_arrives_late_is_refused(brokers: Brokers) -> None:
    """The connection seemed lost; what was sent over it comes after the question whether it has come."""
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    late: list[int] = []
    committer, owner = brokers.first._committer, brokers.first._ownership
    right = committer._execute

    def execute(connection: psycopg.Connection, number: int, change: Change) -> None:
        if not late:
            late.append(owner.epoch)
            raise psycopg.OperationalError("the connection is lost")
        ours, owner.epoch = owner.epoch, late[0]
        with pytest.raises(errors.DivisionByZero):
            right(connection, number, change)
        owner.epoch = ours
        right(connection, number, change)

    committer._execute = execute  # type: ignore[method-assign]
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


@pytest.mark.parametrize("made", [False, True])
def test_result_that_stays_unknown(brokers: Brokers, made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away for long: the commit fails, and the next one finds out whether it was made after all."""
    monkeypatch.setattr(ownership, "OUTCOME_SECONDS", 0.0)
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    cut_at_commit(brokers, made=made)
    with monkeypatch.context() as away:
        away.setattr(brokers.first.database, "conninfo", "host=/nowhere")
        for _ in range(2):
            with pytest.raises(StoreUnreachable):
                append(brokers.first, 1, make_message(3))
    if made:  # it was reported as failed: what this broker knows is not what is stored
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match="must read it again"):
                append(brokers.first, 1, make_message(3))
        assert not brokers.first.check_lock()
    else:
        append(brokers.first, 1, make_message(3))
        assert brokers.first.check_lock()
    assert brokers.first.lane_state(1).count == 3


@pytest.mark.parametrize("lost", ['"commit" = "commit" - 1', "epoch = epoch - 1"])
def test_server_that_has_lost_commits_is_written_no_more(brokers: Brokers, lost: str) -> None:
    """After a failover to a replica that was behind, what the broker knows is not what is stored."""
    assert brokers.first.try_lock("first")
    fill(brokers.first, 1, 2)
    append(brokers.first, 1, make_message(3))
    brokers.execute(f"UPDATE owner SET {lost}")
    with pytest.raises(StoreCorrupt, match="of the 2 commits"):
        append(brokers.first, 1, make_message(4))
    assert not brokers.first.check_lock()


def test_full_disk(brokers: Brokers) -> None:
    """The server reports a full disk as error 53100; here a trigger does."""
    brokers.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    )
    brokers.execute("CREATE TRIGGER fail BEFORE INSERT ON pages EXECUTE FUNCTION fail()")
    with pytest.raises(StoreFull):
        fill(brokers.first, 1, 1)
    assert brokers.first.lane_state(1) == LaneState()
    brokers.execute("DROP TRIGGER fail ON pages")
    fill(brokers.first, 1, 1)
    assert brokers.first.lane_state(1).count == 1


def test_unreachable_server_is_told_without_the_password() -> None:
    store = PostgresqlStore("postgresql+psycopg://quire:secret@127.0.0.1:1/quire")
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1") as caught:
        store.open()
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.data)


def test_lock_of_an_unreachable_server_cannot_be_taken() -> None:
    store = PostgresqlStore("postgresql+psycopg://quire@127.0.0.1:1/quire")
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1") as caught:
        store.try_lock("one of them")
    assert str(caught.value).isprintable()


def test_close_leaves_the_lease_to_run_out_when_the_server_is_away(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert brokers.first.try_lock("one of them")
    with monkeypatch.context() as away:
        away.setattr(brokers.first.database, "conninfo", "host=/nowhere")
        brokers.execute(CUT)
        brokers.first.close()
    assert brokers.execute("SELECT name FROM owner") == [("one of them",)]


@pytest.mark.parametrize(("sync", "shown"), [(Sync.ALWAYS, "on"), (Sync.INTERVAL, "off"), (Sync.NEVER, "off")])
def test_sync_setting(brokers: Brokers, sync: Sync, shown: str) -> None:
    store = PostgresqlStore(brokers.url, sync)
    assert store._ownership.writer.execute("SHOW synchronous_commit").fetchone() == (shown,)
    store.close()


def test_sync_puts_earlier_commits_on_disk(brokers: Brokers) -> None:
    """The server's flushed position passes the commit that did not wait."""
    store = PostgresqlStore(brokers.url, Sync.NEVER)
    store.open()
    fill(store, 1, 100)
    ((written,),) = brokers.execute("SELECT pg_current_wal_insert_lsn()")
    store.sync()
    assert brokers.execute(f"SELECT pg_current_wal_flush_lsn() >= '{written}'") == [(True,)]
    store.close()
