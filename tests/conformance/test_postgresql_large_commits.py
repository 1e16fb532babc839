"""A commit that is too large for one statement is a transaction of several, and as atomic as any."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from quire.errors import StoreError, StoreLocked
from quire.store.base import LaneState, Store, WriteBatch, in_steps
from quire.store.postgresql import commit as commit_module
from quire.store.postgresql.commit import Change
from quire.store.postgresql.store import PostgresqlStore
from quire.testing.faults import tear
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, SharedStoreSuite, append, fill, remove, sequences
from tests.postgresql_server import PostgresqlServer

STEP = 300
"""How much is one statement here, in bytes: nearly every commit is large."""

RUN_OUT = "UPDATE owner SET expires = 'epoch'"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commit_module, commit_module):
        monkeypatch.setattr(module, "STEP_BYTES", STEP)


@pytest.mark.slow
class TestStoreWithLargeCommits(SharedStoreSuite):
    examples = 5

    @pytest.fixture(autouse=True)
    def server(self, postgresql_server: PostgresqlServer, small_steps: None) -> None:
        self._server = postgresql_server

    def make(self, place: Path) -> Store:
        return PostgresqlStore(self._server.url_for(place))

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        tear(store, lane, sequence)

    def break_down(self, store: Store) -> None:
        """Drop the tables."""
        with self._server.connect() as connection:
            connection.execute(f"DROP SCHEMA {self._server.schema_of(self._place)} CASCADE")


@pytest.fixture
def url(postgresql_server: PostgresqlServer, tmp_path: Path) -> str:
    return postgresql_server.url_for(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[PostgresqlStore]:
    """One that has the lock, and ten messages in a page for each two."""
    with closing(PostgresqlStore(url)) as store:
        assert store.try_lock("owner")
        store.open()
        for sequence in range(1, 11, 2):
            append(store, 1, *[make_message(sequence + place, 200) for place in (0, 1)])
        yield store


def large_batch() -> WriteBatch:
    """One with several large parts of each kind, and small ones."""
    batch = WriteBatch(marks={f"m{number}": bytes(200) for number in range(4)}, producers={"p": 1})
    batch.lane(1).appends = [make_message(sequence, 200) for sequence in range(11, 16)]
    batch.lane(1).removals = [1, 3, 5, 7]
    batch.lane(2).appends = [make_message(sequence, 1000) for sequence in range(1, 4)]
    return batch


def is_stored(store: PostgresqlStore) -> bool:
    """Whether all of the large batch is stored; fails if a part is."""
    found = (
        store.lane_state(1).count == 11, sequences(store.page(1, 1, PLENTY, 9))[0] == 2,
        store.lane_state(2).count == 3, len(store.marks("m")) == 4, store.producer("p") == 1,
    )  # fmt: skip
    assert len(set(found)) == 1, found
    return found[0]


def statements_of(store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is sent ahead from now on."""
    sent: list[bytes] = []
    alone = store._committer._statements.alone

    def note(part: object) -> bytes:
        sent.append(alone(part))  # type: ignore[arg-type]
        return sent[-1]

    monkeypatch.setattr(store._committer._statements, "alone", note)
    return sent


def test_large_commit_is_sent_in_steps(store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = statements_of(store, monkeypatch)
    store.apply(large_batch())
    assert is_stored(store)
    kinds = [statement.split()[0] + b" " + statement.split()[2].rpartition(b".")[2] for statement in sent]
    assert kinds.count(b"INSERT pages") > 1
    assert kinds.count(b"INSERT marks") > 1
    assert len(store.page(1, 1, PLENTY, 99).messages) == 11


def test_lease_can_be_renewed_until_the_last_step(store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = []
    send = store._committer._send

    def renew_and_send(connection: psycopg.Connection, rest: Change, values: list[bytes]) -> None:
        renewed.append(store.check_lock())
        send(connection, rest, values)

    monkeypatch.setattr(store._committer, "_send", renew_and_send)
    store.apply(large_batch())
    assert renewed == [True]


def test_large_commit_of_a_broker_that_was_replaced_stores_nothing(store: PostgresqlStore, url: str) -> None:
    with store._ownership.writer.cursor() as cursor:
        cursor.execute(RUN_OUT)
    with closing(PostgresqlStore(url)) as second:
        assert second.try_lock("second")
        for _ in range(2):
            with pytest.raises(StoreLocked):
                store.apply(large_batch())
        second.open()
        assert not is_stored(second)
        second.apply(large_batch())
        assert is_stored(second)


@pytest.mark.parametrize("step", [0, 3, -1])
def test_large_commit_whose_connection_is_lost_is_made_once(
    store: PostgresqlStore, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Before it, between two steps, or with the last one."""
    committer_, right = store._committer, store._committer._send
    pids: list[int] = []
    alone = committer_._statements.alone

    def end(pid: int) -> None:
        pids.append(pid)
        with postgresql_server.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])

    def send(connection: psycopg.Connection, rest: Change, values: list[bytes]) -> None:
        if not pids:
            end(connection.info.backend_pid)
        right(connection, rest, values)

    count = 0

    def end_at_step(part: object) -> bytes:
        nonlocal count
        if count == step and not pids:
            end(store._ownership.writer.info.backend_pid)
        count += 1
        return alone(part)  # type: ignore[arg-type]

    monkeypatch.setattr(committer_, "_send", send)
    monkeypatch.setattr(committer_._statements, "alone", end_at_step)
    store.apply(large_batch())
    assert len(pids) == 1
    assert is_stored(store)
    remove(store, 1, 2, 4)
    assert store.lane_state(1).count == 9


def test_error_in_a_step_stores_nothing_and_the_next_commit_is_made(store: PostgresqlStore) -> None:
    connection = store._ownership.writer
    connection.execute("ALTER TABLE marks ADD CONSTRAINT short CHECK (length(value) < 10)")
    with pytest.raises(StoreError) as caught:
        store.apply(large_batch())
    assert isinstance(caught.value.__cause__, errors.CheckViolation)
    assert not is_stored(store)
    connection.execute("ALTER TABLE marks DROP CONSTRAINT short")
    store.apply(large_batch())
    assert is_stored(store)


def test_value_that_the_server_cannot_take_is_refused_before_anything_is_sent(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "MOST_BYTES", 900)
    with pytest.raises(StoreError, match="no value of more than 900 bytes"):
        store.apply(large_batch())
    assert not is_stored(store)
    fill(store, 3, 2)
    assert store.lane_state(3) == LaneState(1, 2, 2, 80, 3)


def test_process_that_stands_still_in_a_large_commit_is_ended_by_the_server(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold its locks. When it goes on, it makes the commit over another connection."""
    monkeypatch.setattr(commit_module, "_BEGIN", commit_module._BEGIN.replace(b"5s", b"20ms"))
    pids = []
    send = store._committer._send

    def stand_still_and_send(connection: psycopg.Connection, rest: Change, values: list[bytes]) -> None:
        pids.append(connection.info.backend_pid)
        if len(pids) == 1:
            time.sleep(0.1)
        send(connection, rest, values)

    monkeypatch.setattr(store._committer, "_send", stand_still_and_send)
    store.apply(large_batch())
    assert len(set(pids)) == 2
    assert is_stored(store)


@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ([], []),
        ([100, 200], [[100, 200]]),
        ([100, 200, 1], [[100, 200], [1]]),
        ([400], [[400]]),
        ([10, 400, 10], [[10], [400], [10]]),
    ],
)
def test_portions(sizes: list[int], steps: list[list[int]]) -> None:
    assert in_steps(sizes, sizes, STEP) == steps
