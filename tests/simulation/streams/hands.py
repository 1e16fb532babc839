"""What a member of a group has in its hands, as it sees it."""

from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.simulation.streams.log import Record
from tests.simulation.streams.work import Work

if TYPE_CHECKING:
    from tests.simulation.streams.client import StreamClient
    from tests.simulation.streams.consumption import Consumption

AckMode = Literal["auto", "client", "client-individual"]

RETRIES = -1
"""Stands for the number of a partition where the retries are meant."""

FOREVER = float("inf")

EPSILON = 1e-6
"""What floating point numbers may be wrong by, in seconds."""

Key = tuple[int, int]
"""A partition, or ``RETRIES``, and a sequence in its lane."""


def written(key: Key) -> str:
    """A key as ids of acknowledgements and the header ``held`` have it."""
    lane, sequence = key
    return f"{sequence}.{'r' if lane == RETRIES else lane}"


class Remembered(NamedTuple):
    """What a member remembers of a message, whether it is connected or not.

    Attributes:
        ack: the id to acknowledge it by.
        record: the message.
    """

    ack: str
    record: Record


class Grip:
    """A message in the hands of a member."""

    __slots__ = ("ack", "deadline", "key", "latest", "member", "transacted", "work")

    def __init__(self, work: Work, member: "Membership", key: Key, ack: str, now: float) -> None:
        self.work = work
        self.member = member
        self.key = key
        self.ack = ack
        self.transacted: bool | None = None
        self.extend(now + member.timeout)

    def __repr__(self) -> str:
        return f"{self.work.record.sent} ({written(self.key)})"

    def is_up(self, now: float) -> bool:
        """Whether the lease may have ended."""
        return self.transacted is None and self.deadline <= now + EPSILON

    def extend(self, deadline: float) -> None:
        """The lease ends at another time."""
        self.deadline = self.latest = deadline


class Membership:
    """A member of a group."""

    def __init__(
        self, consumption: "Consumption", id: str, client: "StreamClient | None", *, static: bool, ack: AckMode,
        prefetch: int, timeout: float,
    ) -> None:  # fmt: skip
        self.consumption = consumption
        self.id = id
        self.client = client
        self.static = static
        self.ack = ack
        self.prefetch = prefetch
        self.timeout = timeout
        self.grips: dict[Key, Grip] = {}
        self.grace_end = FOREVER
        self.served: dict[int, int] = {}
        self.revoked: dict[int, float] = {}
        self.claims: dict[Key, Remembered] = {}

    def __repr__(self) -> str:
        return self.id

    @property
    def free(self) -> list[Grip]:
        """What it has in its hands and has not settled in the open transaction."""
        return [grip for grip in self.grips.values() if grip.transacted is None]

    def of(self, lane: int) -> list[Grip]:
        """What it has of a partition, or of the retries, in the order it was given."""
        return [grip for grip in self.grips.values() if grip.key[0] == lane]

    def covered(self, grip: Grip) -> list[Grip]:
        """What an acknowledgement is about: in ``client`` mode everything that was given up to it."""
        if self.ack != "client":
            return [grip]
        grips = list(self.grips.values())
        return [other for other in grips[: grips.index(grip) + 1] if other.transacted is None]

    def take(self, grip: Grip) -> None:
        """It has a message."""
        self.grips[grip.key] = grip
        grip.work.holder = grip

    def drop(self, grip: Grip) -> None:
        """It has a message no more."""
        del self.grips[grip.key]
        grip.work.holder = None
