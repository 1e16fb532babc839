"""The worlds that there are: what is particular about the histories of each."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from tests.simulation.cluster.generator import ClusterGenerator
from tests.simulation.cluster.setup import ClusterSetup
from tests.simulation.cluster.steps import AnyStep as ClusterStep
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.crash import CrashPoints
from tests.simulation.history import History, Setup
from tests.simulation.queues.generator import QueueGenerator
from tests.simulation.queues.setup import QueueSetup
from tests.simulation.queues.steps import AnyStep as QueueStep
from tests.simulation.queues.world import QueueWorld
from tests.simulation.streams.generator import StreamGenerator
from tests.simulation.streams.setup import StreamSetup
from tests.simulation.streams.steps import AnyStep as StreamStep
from tests.simulation.streams.world import StreamWorld


class Played(Protocol):
    """What the steps of a history act on.

    Attributes:
        points: where its brokers can crash.
    """

    points: CrashPoints

    def do(self, act: Callable[[Any], None]) -> None:
        """Have something done, and look at what comes of it."""

    def settle_down(self) -> None:
        """Nothing fails any more: let everybody finish, consume everything, and look at what is left."""


class World(NamedTuple):
    """A world.

    Attributes:
        generate: makes a history out of a seed.
        life: what the steps of a history act on.
        setup: what its histories begin with.
        step: any of their steps.
        mark: how the first line of a history begins, ; the longest that fits counts.
    """

    generate: Callable[[int], History]
    life: Callable[..., Played]
    setup: type[Setup]
    step: Any
    mark: str


WORLDS = {
    "queues": World(QueueGenerator.generate, QueueWorld, QueueSetup, QueueStep, "{"),
    "streams": World(StreamGenerator.generate, StreamWorld, StreamSetup, StreamStep, '{"world":"streams"'),
    "cluster": World(ClusterGenerator.generate, ClusterWorld, ClusterSetup, ClusterStep, '{"world":"cluster"'),
}


def world_of(history: History) -> World:
    """Which world a history is about."""
    return next(world for world in WORLDS.values() if isinstance(history.setup, world.setup))


def parse(text: str) -> History:
    """Read a history as ``History.lines`` writes it.

    What does not begin with a brace is passed over, so that a whole report can be read.
    """
    setup, *steps = [line for line in text.splitlines() if line.startswith("{")]
    world = max([world for world in WORLDS.values() if setup.startswith(world.mark)], key=lambda world: len(world.mark))
    read = msgspec.json.Decoder(world.step).decode
    return History(msgspec.json.decode(setup, type=world.setup), tuple([read(step) for step in steps]))
