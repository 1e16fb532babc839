"""What browsers of queues and of streams share: a consumer that is shown messages and takes none of them.

It is shown what was sent before it came, and nothing that is sent later. It reads through snapshots beside all cursors,
a bounded piece a turn, and only while its connection takes output.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.destination import Destination
from quire.errors import StoreError
from quire.message import Message
from quire.selectors import Selector
from quire.settings import Policy
from quire.store.base import Delivery

PIECE_BYTES = 256 * 1024
"""How many bytes of messages are read in one turn, if it is more than one message."""

PIECE = 200
"""How many messages are read in one turn."""

LEAST_PIECE = 32
"""How many messages are read at least where not all of them are shown."""

MAX_WINDOW = 10_000
"""How many messages a browser may be shown before it has acknowledged any, whatever its prefetch."""


class Browsed(ABC):
    """One browser; the source of its own subscription.

    Args:
        ack: whether messages shown are acknowledged; if they are, the prefetch bounds those that are not yet.
        selector: which messages are shown; None for all.
        ended: told when everything was shown, and how many records could not be, because they are damaged.

    Attributes:
        subscription: what the session knows it by.
        subscriptions: none: it is no consumer.
        in_flight: none, for the same reason.
        depth: no messages of its own.
    """

    def __init__(
        self, core: Core, destination: Destination, policy: Policy, session: Session, *, id: str, number: int,
        ack: AckMode, prefetch: int, selector: Selector | None, ended: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.core = core
        self.destination = destination
        self.policy = policy
        self.dequeued = self.in_flight = self.depth = 0
        self.subscriptions: list[Subscription] = []
        self.subscription = Subscription(
            session, self, id=id, number=number, ack=ack, prefetch=min(prefetch, MAX_WINDOW), selector=selector
        )
        self._damaged = 0
        self._tell_end = ended
        self._has_begun = self._is_done = False

    def begin(self) -> None:
        """Begin to show messages: the commit is done that has what was sent before the browser came."""
        self._has_begun = True
        self.wake()

    @abstractmethod
    def _show(self, room: int) -> bool:
        """Read a piece and show what of it is wanted; False at the end."""

    # Showing messages.

    def wake(self) -> None:
        """Go on at the end of this turn."""
        if self._has_begun and not self._is_done:
            self.core.dispatch.wake(self)

    def dispatch(self) -> None:
        """Show a piece, as far as the client and its connection take more."""
        if not self._has_begun or self._is_done or (room := self.subscription.credit) <= 0:
            return
        try:
            if self._show(room):
                self.wake()
            else:
                self._end()
        except StoreError as error:
            self._is_done = True
            self.subscription.session.fail(error)

    def _give(self, messages: list[Message]) -> None:
        subscription = self.subscription
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is not AckMode.AUTO:
            subscription.in_flight.update([(message.sequence, _without_body(message)) for message in messages])
        if messages:
            subscription.session.deliver(subscription, messages)

    def _end(self) -> None:
        """Say that this was all."""
        self._is_done = True
        self._tell_end(self._damaged)

    # What a source does besides. Nothing of it touches what is shown.

    def acknowledge(self, messages: list[Message]) -> None:
        """The client has seen messages: there is room for more."""
        self.dequeued += len(messages)
        self.wake()

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """The client is done with messages."""
        self.wake()

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """The client gives messages back; they never left their place."""
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:  # noqa: B027 (it does nothing)
        """Nothing to note: nothing is delivered."""

    def restore(self, messages: list[Message]) -> None:  # noqa: B027 (it does nothing)
        """Nothing to restore: nothing was taken."""

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """The browser goes."""
        self._is_done = True
        self.core.dispatch.forget(self)
        subscription.in_flight.clear()


def _without_body(message: Message) -> Message:
    """What is kept of a message that was shown, until it is acknowledged: its id."""
    kept = Message(message.sequence, message.content[: message.content.index(b"\n") + 1])
    kept.persistent = kept.stored = message.persistent
    return kept
