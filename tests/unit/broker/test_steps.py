"""Work in steps: a commit between two steps, others in between, a failed read is tried again."""

import pytest

from quire.broker.core.core import BUDGET, RETRY
from quire.clock import ManualClock
from quire.errors import StoreError, StoreFull
from quire.testing.stepped import SteppedBroker


def test_next_step_comes_after_the_commit_of_the_last() -> None:
    stepped = SteppedBroker()
    commits: list[int] = []

    def step() -> bool:
        stepped.broker.core.set_mark(f"m{len(commits)}", b"")
        commits.append(stepped.broker.core.commits_done)
        return len(commits) < 3

    stepped.broker.core.steps.add(step, "counting")
    stepped.run()
    assert commits == [0, 1, 2]


def test_steps_of_one_turn_have_a_budget_of_time_and_the_others_go_first_next_time() -> None:
    clock = ManualClock()
    stepped = SteppedBroker(clock=clock)
    taken: list[str] = []

    def step_of(name: str) -> bool:
        taken.append(name)
        clock.advance(BUDGET)
        return True

    for name in ("a", "b"):
        stepped.broker.core.steps.add(lambda name=name: step_of(name), name)  # type: ignore[misc]
    stepped.turn()
    assert taken == ["a"]
    stepped.turn()
    assert taken == ["a", "b"]


def test_failed_read_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    stepped = SteppedBroker()
    calls = []

    def step() -> bool:
        calls.append(1)
        if len(calls) < 3:
            raise StoreError("cannot read")
        return False

    stepped.broker.core.steps.add(step, "a sweep")
    stepped.run()
    assert len(calls) == 1
    for _ in range(3):
        stepped.advance(RETRY)
        stepped.run()
    assert len(calls) == 3
    assert [record.getMessage() for record in caplog.records].count(
        "a sweep waits until the store can be read: cannot read"
    ) == 1


def test_nothing_is_done_while_the_store_refuses_commits() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("q", b"1")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    calls = []
    stepped.broker.core.steps.add(lambda: bool(calls.append(1)), "a sweep")  # type: ignore[func-returns-value]
    stepped.turn()
    assert calls == []
    for _ in range(2):  # the store takes writes again, and then the step is taken
        stepped.advance(RETRY)
        stepped.run()
    assert calls == [1]


def test_steps_wait_while_the_open_commit_has_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.core.core.OPEN_PARTS", 2)
    stepped, names, sizes = SteppedBroker(), [f"q{number}" for number in range(20)], []
    queues = [stepped.broker.routing.target(name) for name in names]

    def step() -> bool:
        queues.pop().send(b"message-id:1\ntimestamp:1\n\nbody")
        sizes.append(len(stepped.broker.core.open.parts))
        return bool(queues)

    stepped.broker.core.steps.add(step, "sending", stores=False)
    stepped.run()
    assert len(sizes) == len(names)
    assert max(sizes) == 3
    assert [stepped.queue(name).depth for name in names] == [1] * len(names)


def test_steps_go_on_while_the_store_refuses_commits_however_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.core.core.OPEN_PARTS", 2)
    stepped = SteppedBroker()
    for number in range(20):
        stepped.broker.routing.target(f"q{number}")
    queues = list(stepped.broker.queues.values())
    stepped.run()
    queues.pop().send(b"message-id:1\ntimestamp:1\n\nbody")
    stepped.turn()
    stepped.commit(StoreFull("no space left"))

    def step() -> bool:
        stepped.broker.core.list_part(queues.pop().open_part())
        return bool(queues)

    stepped.broker.core.steps.add(step, "listing", stores=False)
    stepped.run_turns()
    assert not queues
