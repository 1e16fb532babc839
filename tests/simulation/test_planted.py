"""The simulation finds bugs: each one planted by hand, in few histories, and it tells them in few steps."""

from collections.abc import Callable

import pytest

from tests.simulation import planted
from tests.simulation.bug import Bug
from tests.simulation.generator import generate
from tests.simulation.history import History, parse
from tests.simulation.run import failure_of, kind_of
from tests.simulation.shrink import shrink_failure
from tests.simulation.streams import planted as planted_in_streams
from tests.simulation.streams.generator import generate as generate_streams

MOST_SEEDS = 1000
"""A bug that needs more histories than this is not found."""


def _found(bug: Bug, generate: Callable[[int], History]) -> tuple[int, History]:
    """The first seed whose history fails with a bug, and keeps every promise without it."""
    for seed in range(MOST_SEEDS):
        history = generate(seed)
        with bug.plant():
            failure = failure_of(history)
        if failure and not failure_of(history):
            return seed, history
    pytest.fail(f"not found in {MOST_SEEDS} histories", pytrace=False)


def _check_found(name: str, bug: Bug, generate: Callable[[int], History], capsys: pytest.CaptureFixture[str]) -> None:
    seed, history = _found(bug, generate)
    with bug.plant():
        failure = failure_of(history)
    assert failure is not None
    with capsys.disabled():
        print(f"\n{name}: found after {seed + 1} histories, {failure}")


@pytest.mark.slow
@pytest.mark.parametrize("name", planted.PLANTED)
def test_a_planted_bug_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _check_found(name, planted.PLANTED[name], generate, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", planted_in_streams.PLANTED)
def test_a_bug_planted_in_streams_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _check_found(name, planted_in_streams.PLANTED[name], generate_streams, capsys)


@pytest.mark.slow
def test_a_history_that_fails_is_shrunk_to_few_steps_which_fail_when_they_are_read_again() -> None:
    bug = planted.PLANTED["returned messages go behind later ones"]
    _, history = _found(bug, generate)
    with bug.plant():
        failure, shortest = failure_of(history), shrink_failure(history)
        again = failure_of(parse("\n".join(shortest.lines())))
    assert failure is not None
    assert again is not None
    assert len(shortest.steps) <= 10
    assert kind_of(again) == kind_of(failure)
