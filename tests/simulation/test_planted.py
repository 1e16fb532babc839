"""The simulation finds bugs: each one planted by hand, in few histories, and it tells them in few steps."""

import pytest

from tests.simulation.history import History
from tests.simulation.planted import PLANTED, Bug
from tests.simulation.run import WORLDS, failure_of, kind_of, parse, shrink_failure

MOST_SEEDS = 1000
"""A bug that needs more histories than this is not found."""


def _found(world: str, bug: Bug) -> tuple[int, History, Exception]:
    """The first seed whose history fails with a bug, and keeps every promise without it; and how it fails."""
    for seed in range(bug.first, bug.first + MOST_SEEDS):
        history = WORLDS[world].generate(seed)
        with bug.plant():
            failure = failure_of(history)
        if failure and not failure_of(history):
            return seed, history, failure
    pytest.fail(f"not found in {MOST_SEEDS} histories", pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "name"), [(world, name) for world, bugs in PLANTED.items() for name in bugs])
def test_a_planted_bug_is_found(world: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bug = PLANTED[world][name]
    seed, _, failure = _found(world, bug)
    assert not isinstance(failure, TypeError | AttributeError), (
        f"the wrong method is not called as the right one: {failure}"
    )
    with capsys.disabled():
        print(f"\n{name}: found after {seed + 1 - bug.first} histories, {failure}")


@pytest.mark.slow
def test_a_history_that_fails_is_shrunk_to_few_steps_which_fail_when_they_are_read_again() -> None:
    bug = PLANTED["queues"]["returned messages go behind later ones"]
    _, history, failure = _found("queues", bug)
    with bug.plant():
        shortest = shrink_failure(history)
        again = failure_of(parse("\n".join(shortest.lines())))
    assert again is not None
    assert len(shortest.steps) <= 10
    assert kind_of(again) == kind_of(failure)
