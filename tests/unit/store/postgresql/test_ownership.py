"""What becomes of a commit whose connection is lost, in every order of events; no server is needed."""

import psycopg
import pytest
from psycopg import errors

from quire.clock import ManualClock
from quire.errors import StoreCorrupt, StoreLocked, StoreUnreachable
from quire.store.postgresql.commit import COMMIT_TRIES, Change, Committer
from quire.store.postgresql.ownership import OUTCOME_SECONDS, Ownership
from tests.unit.store.postgresql.fake_server import LOST, FakeDatabase, FakeServer

FENCED = errors.DivisionByZero("division by zero")
CHANGE: Change = []


class FakeCommitter(Committer):
    """Commits to the fake server: each plan says what happens to one, "lost", "made and lost" or nothing."""

    def __init__(self, server: FakeServer, clock: ManualClock) -> None:
        database = FakeDatabase(server)
        self.owner = Ownership(database, clock, durable=True)
        super().__init__(database, self.owner, durable=True)
        self.server = server
        self.plans: list[str] = []

    def _execute(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        plan = self.plans.pop(0) if self.plans else ""
        row = self.server.row
        if plan != "lost":
            if (row.epoch, row.commits) != (self.owner.epoch, number - 1):
                raise FENCED
            row.commits = number
            self.owner.is_replicated = plan != "not replicated"
        if plan.endswith("lost"):
            raise LOST


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def committer(server: FakeServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> FakeCommitter:
    monkeypatch.setattr("time.sleep", clock.advance)
    made = FakeCommitter(server, clock)
    assert made.owner.try_lock("us")
    made.commit(CHANGE)
    return made


@pytest.mark.parametrize("plans", [["lost"], ["made and lost"], ["not replicated"], ["lost", "made and lost"]])
def test_commit_is_made_once(committer: FakeCommitter, plans: list[str]) -> None:
    committer.plans = plans
    committer.commit(CHANGE)
    assert (committer.server.row.commits, committer.owner.commits) == (2, 2)
    committer.commit(CHANGE)
    assert committer.server.row.commits == 3


def test_connections_that_are_always_lost(committer: FakeCommitter) -> None:
    committer.plans = ["lost"] * COMMIT_TRIES
    with pytest.raises(StoreUnreachable):
        committer.commit(CHANGE)
    assert committer.server.row.commits == 1
    committer.commit(CHANGE)


def test_another_broker_was_faster(committer: FakeCommitter) -> None:
    """It took over while the connection was lost: whatever became of the commit, nothing more is written."""
    committer.plans = ["made and lost"]
    committer.server.after = [None]
    right = committer._execute

    def execute(connection: psycopg.Connection, number: int, change: Change) -> None:
        try:
            right(connection, number, change)
        finally:
            committer.server.take_over()

    committer._execute = execute  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StoreLocked):
            committer.commit(CHANGE)
    assert not committer.owner.check()


def test_fenced(committer: FakeCommitter) -> None:
    committer.server.take_over()
    for _ in range(2):
        with pytest.raises(StoreLocked):
            committer.commit(CHANGE)
    assert committer.server.row.commits == 1


def test_the_server_has_fewer_commits(committer: FakeCommitter) -> None:
    """By the fence, and by the question after a lost connection."""
    committer.server.row.commits = 0
    with pytest.raises(StoreCorrupt, match="0 of the 1 commits"):
        committer.commit(CHANGE)


def test_the_server_has_fewer_commits_after_a_failover(committer: FakeCommitter) -> None:
    committer.commit(CHANGE)
    committer.plans = ["lost"]
    committer.server.row.commits = 0
    with pytest.raises(StoreCorrupt, match="0 of the 2 commits"):
        committer.commit(CHANGE)


@pytest.mark.parametrize("plan", ["lost", "made and lost"])
def test_new_epoch_that_was_made_over_a_lost_connection_is_ours(committer: FakeCommitter, plan: str) -> None:
    """The token tells so: by its number alone it might be another broker's."""
    committer.plans = [plan]
    committer.server.after = [LOST, LOST]
    committer.commit(CHANGE)
    assert committer.server.row.commits == 2
    assert committer.server.row.epoch == committer.owner.epoch == 4


def test_row_that_a_stopped_process_has_is_freed(committer: FakeCommitter) -> None:
    committer.plans = ["lost"]
    committer.server.before = [errors.LockNotAvailable("canceling statement due to lock timeout")]
    committer.commit(CHANGE)
    assert committer.server.log[-3:] == ["failed", "terminated", "epoch"]
    assert committer.server.row.commits == 2


def test_new_epoch_that_replicas_may_not_have_is_made_again(committer: FakeCommitter) -> None:
    committer.plans = ["not replicated"]
    committer.server.warns = 2
    committer.commit(CHANGE)
    assert committer.server.row.epoch == committer.owner.epoch == 4


def test_lock_that_replicas_may_not_have_is_not_taken(server: FakeServer, clock: ManualClock) -> None:
    owner = Ownership(FakeDatabase(server), clock, durable=True)
    server.warns = 1
    with pytest.raises(psycopg.OperationalError):
        owner.try_lock("us")
    assert not owner.is_held
    assert owner.try_lock("us")


@pytest.mark.parametrize("made", [False, True])
def test_server_that_stays_away(committer: FakeCommitter, clock: ManualClock, made: bool) -> None:
    """The commit counts as failed. The next one finds out whether it was made; then what the broker knows is wrong."""
    committer.plans = ["made and lost" if made else "lost"]
    committer.server.before = [LOST] * 10_000
    began = clock.monotonic()
    with pytest.raises(StoreUnreachable, match="unknown"):
        committer.commit(CHANGE)
    assert OUTCOME_SECONDS <= clock.monotonic() - began < OUTCOME_SECONDS + 1
    waited = clock.monotonic()
    with pytest.raises(StoreUnreachable, match="unknown"):  # it does not wait again
        committer.commit(CHANGE)
    assert clock.monotonic() == waited
    committer.server.before = []
    if made:
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match="read it again"):
                committer.commit(CHANGE)
        assert not committer.owner.check()
    else:
        committer.commit(CHANGE)
    assert committer.server.row.commits == 2


def test_commit_that_arrives_late_is_fenced(committer: FakeCommitter) -> None:
    """The commit was asked for and repeated. Its first copy, with the epoch before, may come no more."""
    committer.plans = ["lost"]
    late = committer.owner.epoch
    committer.commit(CHANGE)
    committer.owner.epoch, ours = late, committer.owner.epoch
    with pytest.raises(errors.DivisionByZero):
        committer._execute(committer.owner._connected(), committer.owner.commits + 1, CHANGE)
    committer.owner.epoch = ours
    assert committer.server.row.commits == 2
