"""What the parts of a dispatcher need of the queue that they give out messages of."""

from collections.abc import Sequence
from typing import Protocol

from quire.broker.core.subscription import Subscription
from quire.broker.queues.lane_commits import LaneCommits
from quire.broker.queues.message_locator import MessageLocator
from quire.broker.queues.queue_lane import QueueLane
from quire.message import Message
from quire.settings import Policy


class Dispatched(Protocol):
    """A queue, or what is dispatched as one.

    Attributes:
        policy: what applies to it.
        subscriptions: its consumers, in the order they came.
        locator: says where its messages are.
        commits: what it has in commits.
    """

    policy: Policy
    subscriptions: list[Subscription]
    locator: MessageLocator
    commits: LaneCommits

    @property
    def lanes(self) -> Sequence[QueueLane]:
        """Its lanes, those of higher priority first."""

    @property
    def grouped(self) -> bool:
        """Whether it may have messages of groups."""

    @property
    def group_header(self) -> bytes | None:
        """The header whose value is a message's group; None if there are no messages of groups."""

    @property
    def room(self) -> int:
        """How many more messages its consumers may have, all together."""

    @property
    def window(self) -> int:
        """How many messages its consumers may have in flight, all together."""

    @property
    def is_given_out(self) -> bool:
        """Whether it has one consumer, and that has all there is."""

    def give(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Give messages to a consumer that has credit for them."""

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """Remove resident messages that cannot be delivered."""

    def wake(self) -> None:
        """Dispatch at the end of this turn."""

    def memory_released(self) -> bool:
        """Memory was released: try again. Whether nothing is refused any more."""
