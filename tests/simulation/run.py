"""Runs histories: is every promise kept?"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.simulation.client import Note
from tests.simulation.history import History
from tests.simulation.rules import Broken, Rule
from tests.simulation.small_steps import small_steps
from tests.simulation.steps import Crash
from tests.simulation.worlds import Played, world_of

TIME_LIMIT = 2.0
"""How many seconds of this process a history may take: a hundred times what it does take."""
AGAIN = 0.01
"""Seconds until a limit that ran out in foreign code is looked at again."""


def run(history: History, note: Note = lambda text: None, limit: float = TIME_LIMIT) -> None:
    """Run a history, then consume everything, checking all the while."""
    with small_steps(), _time_limit(limit):
        _play(history, note).settle_down()


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """End a broker that goes round in a circle; in its own code, since a callback of the collector swallows errors."""

    def end(_signal: int, frame: FrameType | None) -> None:
        if frame is None or not frame.f_globals["__name__"].startswith(("quire.", "tests.")):
            return
        raise Broken(Rule.REST, f"the broker does not come out of a call within {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _play(history: History, note: Note) -> Played:
    life = world_of(history).life(history.setup, note)
    for step in history.steps:
        life.do(step.act)
    return life


def crashing_everywhere(history: History) -> Iterator[History]:
    """The history with a crash at each call of its stores, one after the other, instead of those that it has."""
    steps = tuple([step for step in history.steps if not isinstance(step, Crash)])
    with small_steps():
        points = _play(History(history.setup, steps), lambda text: None).points.reached
    for at in range(1, points + 1):
        for written in (False, True):
            yield History(history.setup, (Crash(at, written), *steps))


def kind_of(failure: Exception) -> str:
    """What kind of failure it is: the rule that was broken, or what was raised."""
    return failure.rule if isinstance(failure, Broken) else type(failure).__name__


def failure_of(history: History, note: Note = lambda text: None, limit: float = TIME_LIMIT) -> Exception | None:
    """What went wrong in a history, run as ``run`` does; None if nothing did."""
    try:
        run(history, note, limit)
    except Exception as failure:  # whatever it is, the history that led to it is what counts
        return failure
    return None
