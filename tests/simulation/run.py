"""The worlds that there are; histories are run, crashed everywhere, and shrunk to what makes them fail."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct, structs

from tests.simulation.client import Broken, Note, Rule
from tests.simulation.cluster import AnyStep as ClusterStep
from tests.simulation.cluster import ClusterGenerator, ClusterSetup, ClusterWorld
from tests.simulation.history import Crash, History, Setup, Step
from tests.simulation.life import CrashPoints, small_steps
from tests.simulation.queues import AnyStep as QueueStep
from tests.simulation.queues import QueueGenerator, QueueSetup, QueueWorld
from tests.simulation.stream_model import StreamSetup
from tests.simulation.streams import AnyStep as StreamStep
from tests.simulation.streams import StreamGenerator, StreamWorld


class Played(Protocol):
    """What the steps of a history act on."""

    points: CrashPoints  # where its brokers can crash

    def do(self, act: Callable[[Any], None]) -> None:
        """Have something done, and look at what comes of it."""

    def settle_down(self) -> None:
        """Nothing fails any more: let everybody finish, consume everything, and look at what is left."""


class World(NamedTuple):
    generate: Callable[[int], History]  # makes a history out of a seed
    life: Callable[..., Played]  # what the steps of a history act on
    setup: type[Setup]  # what its histories begin with
    step: Any  # any of their steps
    mark: str  # how the first line of a history begins, ; the longest that fits counts


WORLDS = {
    "queues": World(QueueGenerator.generate, QueueWorld, QueueSetup, QueueStep, "{"),
    "streams": World(StreamGenerator.generate, StreamWorld, StreamSetup, StreamStep, '{"world":"streams"'),
    "cluster": World(ClusterGenerator.generate, ClusterWorld, ClusterSetup, ClusterStep, '{"world":"cluster"'),
}


def world_of(history: History) -> World:
    return next(world for world in WORLDS.values() if isinstance(history.setup, world.setup))


def parse(text: str) -> History:
    """Read a history as ``History.lines`` writes it.

    What does not begin with a brace is passed over, so that a whole report can be read.
    """
    setup, *steps = [line for line in text.splitlines() if line.startswith("{")]
    world = max([world for world in WORLDS.values() if setup.startswith(world.mark)], key=lambda world: len(world.mark))
    read = msgspec.json.Decoder(world.step).decode
    return History(msgspec.json.decode(setup, type=world.setup), tuple([read(step) for step in steps]))


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
    return failure.rule if isinstance(failure, Broken) else type(failure).__name__


def failure_of(history: History, note: Note = lambda text: None, limit: float = TIME_LIMIT) -> Exception | None:
    """What went wrong in a history, run as ``run`` does; None if nothing did."""
    try:
        run(history, note, limit)
    except Exception as failure:  # whatever it is, the history that led to it is what counts
        return failure
    return None


_Part = TypeVar("_Part", bound=Struct)

SHORT_LIMIT = 0.3
"""How many seconds of this process each try may take: a history that never ends is tried as often as any."""

Fails = Callable[[History], bool]
"""Whether a history still fails in the way that is looked for."""


def shrink(history: History, fails: Fails) -> History:
    """Leave out runs of steps, long ones first, as long as the rest fails in the same way (delta debugging)."""
    before = None
    while history != before:  # with plainer steps, and a plainer setup, more of them may be left out
        before = history
        history = _shorter(history, fails)
        for index in range(len(history.steps)):
            history = _with_plain_step(history, index, fails)
        history = _with_plain_setup(history, fails)
    return history


def _shorter(history: History, fails: Fails) -> History:
    """Leave out runs of steps, as many as can be."""
    size = len(history.steps) // 2
    while size:
        shorter = _without_runs(history, size, fails)
        if len(shorter.steps) == len(history.steps):
            size //= 2
        history = shorter
        size = min(size, len(history.steps))
    return history


def _with_plain_setup(history: History, fails: Fails) -> History:
    return History(_plain(history.setup, lambda setup: fails(History(setup, history.steps))), history.steps)


def _with_plain_step(history: History, index: int, fails: Fails) -> History:
    def changed(step: Step) -> History:
        return History(history.setup, (*history.steps[:index], step, *history.steps[index + 1 :]))

    return changed(_plain(history.steps[index], lambda step: fails(changed(step))))


def _plain(part: _Part, fails: Callable[[_Part], bool]) -> _Part:
    """Give every field of a step or a setup its default that need not have another value."""
    for field in structs.fields(part):
        value = getattr(part, field.name)
        if not field.required and value is not field.default:
            plainer = structs.replace(part, **{field.name: field.default})
            if value == field.default or fails(plainer):
                part = plainer
    return part


def _without_runs(history: History, size: int, fails: Fails) -> History:
    for start in range(len(history.steps) - size, -size, -size):
        first = max(start, 0)
        shorter = History(history.setup, history.steps[:first] + history.steps[start + size :])
        if fails(shorter):
            history = shorter
    return history


def shrink_failure(history: History) -> History:
    """The shortest history found that fails as this one does."""
    failure = failure_of(history)
    if failure is None:
        return history
    kind = kind_of(failure)

    def fails(shorter: History) -> bool:
        found = failure_of(shorter, limit=SHORT_LIMIT)
        return found is not None and kind_of(found) == kind

    return shrink(history, fails)
