"""Makes a history out of a seed: what all worlds have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import ClassVar, Literal

from tests.simulation.history import History, Setup
from tests.simulation.steps import Begin, Crash, End, Finish, Jump, Leave, Read, Run, Step, Wait

PRODUCERS = ("p0", "p1")
CONSUMERS = ("c0", "c1", "c2")

HOUR, YEAR = 3600.0, 8760 * 3600.0
JUMPS = (0.0, 0.0, HOUR, -HOUR, YEAR, -YEAR)
"""By how much the broker's clock is ahead."""

Weights = dict[Callable[[], Step], int]
"""What draws a step, and how often one is drawn."""


class Generator(ABC):
    """Draws one history."""

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
