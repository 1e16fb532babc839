"""What a group has made of one message: where it stands, and where it may stand after a crash."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.sent import Outcome
from tests.simulation.streams.log import Record

if TYPE_CHECKING:
    from tests.simulation.streams.hands import Grip


class Place(StrEnum):
    """Where a message is for a group."""

    WAITING = "at its place"
    RETRY = "in the retry lane"
    DONE = "finished"


class State(NamedTuple):
    """What the store says of a message for a group.

    Attributes:
        place: where it is.
        returns: how often it came back from a member.
        failures: how many of these count against the maximum.
        not_before: when it may be delivered again, in milliseconds since the epoch; 0 for at once.
        letters: how many dead letters there are of it.
    """

    place: Place = Place.WAITING
    returns: int = 0
    failures: int = 0
    not_before: int = 0
    letters: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it is not finished."""
        return self.place is not Place.DONE

    def done(self, letters: int = 0) -> "State":
        """It is finished, with a dead letter or without."""
        return State(Place.DONE, letters=self.letters + letters)


States = frozenset[State]

UNTOUCHED: States = frozenset({State()})
PASSED: States = frozenset({State(Place.DONE)})


class Work:
    """One message for one group."""

    __slots__ = ("_trail", "holder", "outcome", "record", "written")

    def __init__(self, record: Record, states: States = UNTOUCHED) -> None:
        self.record = record
        self.holder: Grip | None = None
        self.written = 0
        self.outcome: Outcome | None = None
        self._trail: list[tuple[int, States]] = [(0, states)]

    @property
    def possible(self) -> States:
        """The states it may be in."""
        return self._trail[-1][1]

    @property
    def is_open(self) -> bool:
        """Whether it certainly is not finished."""
        return all([state.is_open for state in self.possible])

    @property
    def may_be_open(self) -> bool:
        """Whether it may be not finished."""
        return any([state.is_open for state in self.possible])

    def change(self, moment: int, change: Callable[[State], Iterable[State]]) -> None:
        """Something happens to it."""
        self._trail.append((moment, frozenset([new for state in self.possible for new in change(state)])))

    def narrow(self, holds: Callable[[State], bool]) -> bool:
        """Something is seen that only some states allow; whether there are such."""
        moment, states = self._trail[-1]
        left = frozenset([state for state in states if holds(state)])
        if left:
            self._trail[-1] = (moment, left)
        return bool(left)

    def after_crash(self, durable: int) -> States:
        """The states it may have in the store."""
        last = max([index for index, (moment, _) in enumerate(self._trail) if moment <= durable], default=0)
        return frozenset().union(*[states for _, states in self._trail[last:]])

    def is_in(self, state: State, moment: int) -> None:
        """It is known to be in one state, durably."""
        self._trail = [(moment, frozenset({state}))]
