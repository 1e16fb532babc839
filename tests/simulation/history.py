"""A history as an explicit list of steps, which can be drawn from a seed, written down, read again, and shortened."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from quire.errors import StoreFull
from quire.settings import Settings
from tests.simulation.client import SimulatedClient
from tests.simulation.life import Life


class Step(Struct, frozen=True, omit_defaults=True, tag_field="do", tag=str.lower):
    """A step. It is written as a line of JSON, ``do`` being the name of its class."""

    def act(self, world: Any) -> None:
        """Do it. Without anything to act on it does nothing."""
        raise NotImplementedError


class Turn(Step, frozen=True):
    """The broker has one turn, if it wants one."""

    def act(self, world: Life[SimulatedClient]) -> None:
        world.stepped.turn()


class Finish(Step, frozen=True):
    """The commit under way ends, if there is one."""

    fails: bool = False  # whether the store refuses it

    def act(self, world: Life[SimulatedClient]) -> None:
        world.end_commit(fails=self.fails)


class Run(Step, frozen=True):
    """The broker does all it can do at this time; then everything must have gone on that can."""

    verify: bool = False  # whether the store is verified too

    def act(self, world: Life[SimulatedClient]) -> None:
        world.note("the broker comes to rest")
        world.rest(verify=self.verify)


class Wait(Step, frozen=True):
    seconds: float

    def act(self, world: Life[SimulatedClient]) -> None:
        world.note(f"{self.seconds} s go by")
        world.stepped.advance(self.seconds)


class Jump(Step, frozen=True):
    """The broker's clock is set."""

    ahead: float = 0.0  # by how many seconds it is ahead of the right one from now on; 0 for not at all

    def act(self, world: Life[SimulatedClient]) -> None:
        world.note(f"the clock is {self.ahead} s ahead")
        world.clock.set(self.ahead)


class Fail(Step, frozen=True):
    """Calls of a kind fail."""

    what: Literal["read", "spool"]  # a read of the store, or a write of the spool
    at: int = 1  # of reads, from which on; the next is 1
    times: int = 1  # of reads, how many, one after the other

    def act(self, world: Life[SimulatedClient]) -> None:
        if self.what == "read":
            world.note(f"of the next reads, {self.times} fail from number {self.at} on")
            world.store.fail_reads(self.at, self.times)
        else:
            world.note("the next write of the spool fails")
            world.spool_store.write_error = StoreFull("no space in the spool")


class Crash(Step, frozen=True):
    """The broker dies, and starts again."""

    at: int = 0  # at which of the next calls of its stores; 0 for now
    written: bool = False  # whether the commit under way is written, though nobody hears of it

    def act(self, world: Life[SimulatedClient]) -> None:
        world.plan_crash(self.at, written=self.written)


class Begin(Step, frozen=True):
    client: str

    def act(self, world: Life[SimulatedClient]) -> None:
        world.client(self.client).begin()


class End(Step, frozen=True):
    client: str
    commit: bool = True  # whether it commits; it aborts otherwise

    def act(self, world: Life[SimulatedClient]) -> None:
        if client := world.clients.get(self.client):
            client.end(commit=self.commit)


class Settle(Step, frozen=True):
    """A consumer of queues acknowledges messages, or rejects them."""

    client: str
    pick: int = 0  # which of the messages in flight, counted around
    count: int = 1  # how many times
    reject: bool = False
    receipt: bool = False

    def act(self, world: Any) -> None:
        if client := world.clients.get(self.client):
            for _ in range(self.count):
                client.settle(self.pick, reject=self.reject, receipt=self.receipt)


class Leave(Step, frozen=True):
    """A client goes."""

    client: str
    how: Literal["vanish", "disconnect", "unsubscribe"] = "vanish"  # without a word, with one, or only as a consumer

    def act(self, world: Life[SimulatedClient]) -> None:
        if client := world.clients.get(self.client):
            client.leave(self.how)


class Read(Step, frozen=True):
    """A client's connection takes output, or takes none."""

    client: str
    on: bool = True  # whether it does

    def act(self, world: Life[SimulatedClient]) -> None:
        if client := world.clients.get(self.client):
            client.read(on=self.on)


CommonStep = Turn | Finish | Run | Wait | Jump | Fail | Crash | Begin | End | Leave | Read


class Setup(Struct, frozen=True, omit_defaults=True):
    """What a history begins with: the broker's limits. Each world has its own kind."""

    def settings(self) -> Settings:
        raise NotImplementedError


class History(Struct, frozen=True):
    """What happens to a broker.

    Any steps of it make a history too: one that has nothing to act on does nothing.
    """

    setup: Setup  # what it begins with; it says which world it is about
    steps: tuple[Step, ...]  # what happens

    def lines(self) -> list[str]:
        return [msgspec.json.encode(part).decode() for part in (self.setup, *self.steps)]


PRODUCERS = ("p0", "p1")
CONSUMERS = ("c0", "c1", "c2")

HOUR, YEAR = 3600.0, 8760 * 3600.0
JUMPS = (0.0, 0.0, HOUR, -HOUR, YEAR, -YEAR)
"""By how much the broker's clock is ahead."""

Weights = dict[Callable[[], Step], int]
"""What draws a step, and how often one is drawn."""


class Generator(ABC):
    FEATURES: ClassVar[tuple[str, ...]]
    CHANCE: ClassVar[float]
    WAITS: ClassVar[tuple[float, ...]]
    JUMPING: ClassVar[int] = 0
    """Of how many histories the clock is set in one; 0 for in none."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._features = {feature for feature in self.FEATURES if random.random() < self.CHANCE}
        self._consumers: tuple[str, ...] = CONSUMERS

    @classmethod
    def generate(cls, seed: int) -> History:
        """The history of a seed: a setup and 50 to 150 steps."""
        generator = cls(Random(seed))
        setup = generator._setup()
        weights = generator._weights()
        random = generator._random
        draws = random.choices(list(weights), list(weights.values()), k=random.randint(50, 150))
        steps = [draw() for draw in draws]
        if cls.JUMPING and seed % cls.JUMPING == 1:
            clock = Random(seed)
            for _ in range(clock.randint(2, 10)):
                steps.insert(clock.randint(0, len(steps)), Jump(clock.choice(JUMPS)))
        return History(setup, tuple(steps))

    @abstractmethod
    def _setup(self) -> Setup: ...

    @abstractmethod
    def _weights(self) -> Weights: ...

    def _has(self, feature: str) -> bool:
        return feature in self._features

    # Clients.

    def _client(self) -> str:
        return self._random.choice((*PRODUCERS, *self._consumers))

    def _begin(self) -> Step:
        return Begin(self._client())

    def _end(self) -> Step:
        return End(self._client(), commit=self._random.random() < 0.8)

    def _settle(self) -> Step:
        random = self._random
        return Settle(
            client=random.choice(self._consumers),
            pick=random.choice((0, 0, 0, 1, 2, 7)),
            count=random.choice((1, 1, 2, 5)),
            reject=self._has("rejections") and random.random() < 0.3,
            receipt=random.random() < 0.5,
        )

    def _leave(self) -> Step:
        hows: tuple[Literal["vanish", "disconnect", "unsubscribe"], ...] = ("vanish", "disconnect", "unsubscribe")
        return Leave(self._client(), self._random.choice(hows))

    def _read(self) -> Step:
        return Read(self._random.choice(self._consumers), on=self._random.random() < 0.5)

    # The broker.

    def _finish(self) -> Step:
        return Finish(fails=self._has("failures") and self._random.random() < 0.2)

    def _run(self) -> Step:
        return Run(verify=self._random.random() < 0.1)

    def _wait(self) -> Step:
        return Wait(self._random.choice(self.WAITS))

    def _crash(self) -> Step:
        return Crash(at=self._random.choice((0, 1, 2, 3, 5, 10, 20)), written=self._random.random() < 0.5)
