"""When commits begin: they wait for the senders of the last two, shortly, and longer if nobody waits for them."""

from collections.abc import Callable

import pytest

from quire.broker.core.core import Commit
from quire.broker.core.subscription import Session
from quire.broker.queues.queue import QueuePart
from quire.broker.turns import LINGER, UNHURRIED, CommitPacing
from quire.clock import ManualClock
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import core_session

STEPPED = SteppedBroker()
A, B, C, D = (core_session(STEPPED.connect()) for _ in range(4))


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(1)
    return clock


@pytest.fixture
def pacing(clock: ManualClock) -> CommitPacing:
    return CommitPacing(clock, lingers=True)


def sent_by(*senders: Session) -> Commit:
    """A commit with something of these senders."""
    return Commit(1, senders=dict.fromkeys(senders))


def acknowledgements() -> Commit:
    """A commit with nothing but acknowledgements, for which nobody asked a receipt."""
    commit = Commit(1)
    commit.parts[STEPPED.queue("q")] = QueuePart(STEPPED.queue("q"))
    return commit


def test_the_first_commit_waits_for_nobody(pacing: CommitPacing) -> None:
    assert pacing.delay(sent_by(A)) == 0


def test_a_commit_waits_for_as_many_senders_as_the_last_two_had_together(pacing: CommitPacing) -> None:
    pacing.ended(sent_by(A, B))
    pacing.ended(sent_by(B, C))
    assert pacing.delay(sent_by(A)) > 0
    assert pacing.delay(sent_by(A, B)) > 0
    assert pacing.delay(sent_by(A, B, D)) == 0


def test_senders_of_earlier_commits_are_not_waited_for(pacing: CommitPacing) -> None:
    for senders in ((A, B, D), (C,), (C,)):
        pacing.ended(sent_by(*senders))
    assert pacing.delay(sent_by(A)) == 0


def test_a_commit_waits_a_millisecond_after_the_last_one_at_the_most(pacing: CommitPacing, clock: ManualClock) -> None:
    pacing.ended(sent_by(A, B))
    clock.advance(LINGER / 4)
    assert pacing.delay(sent_by(A)) == pytest.approx(0.75 * LINGER)
    clock.advance(LINGER / 2)
    assert pacing.delay(sent_by(A)) == pytest.approx(0.25 * LINGER)
    clock.advance(LINGER / 2)
    assert pacing.delay(sent_by(A)) == 0
    assert LINGER == 0.001


def test_a_sender_that_comes_later_than_that_does_not_wait(pacing: CommitPacing, clock: ManualClock) -> None:
    pacing.ended(sent_by(A, B))
    clock.advance(1)
    assert pacing.delay(sent_by(A)) == 0


def test_acknowledgements_alone_wait_ten_milliseconds_at_the_most(pacing: CommitPacing, clock: ManualClock) -> None:
    for _ in range(2):
        assert pacing.delay(acknowledgements()) == pytest.approx(UNHURRIED)
        clock.advance(0.6 * UNHURRIED)
        assert pacing.delay(acknowledgements()) == pytest.approx(0.4 * UNHURRIED)
        clock.advance(0.5 * UNHURRIED)
        assert pacing.delay(acknowledgements()) == 0
    assert UNHURRIED == 0.01


def test_acknowledgements_go_with_the_first_sender_and_the_next_ones_wait_anew(
    pacing: CommitPacing, clock: ManualClock
) -> None:
    pacing.delay(acknowledgements())
    clock.advance(0.6 * UNHURRIED)
    assert pacing.delay(sent_by(A)) == 0
    assert pacing.delay(acknowledgements()) == pytest.approx(UNHURRIED)


@pytest.mark.parametrize(
    "somebody_waits",
    [
        lambda commit: commit.receipts.append((A, [b"r"])),
        lambda commit: commit.calls.append(lambda: None),
        lambda commit: setattr(commit, "hurried", True),
        lambda commit: commit.batch.producers.update(p=1),
    ],
    ids=["receipt", "call", "hurried", "batch"],
)
def test_acknowledgements_do_not_wait_while_somebody_waits_for_them(
    pacing: CommitPacing, somebody_waits: Callable[[Commit], None]
) -> None:
    commit = acknowledgements()
    somebody_waits(commit)
    assert pacing.delay(commit) == 0


def test_a_broker_that_is_stepped_by_hand_never_waits(clock: ManualClock) -> None:
    pacing = CommitPacing(clock, lingers=False)
    pacing.ended(sent_by(A, B))
    assert pacing.delay(sent_by(A)) == pacing.delay(acknowledgements()) == 0
