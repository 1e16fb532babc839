"""Why a consumer is given nothing now."""

from typing import TYPE_CHECKING, Annotated, Any

from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.management.blocked import blocked
from quire.management.described import Status, doc

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.core.subscription import Subscription


class Wait(Status, frozen=True):
    """Why a consumer is given nothing now.

    Of the consumer: ``connection-full``, its connection takes no more output; ``prefetch-full``, it has as many
    messages as its prefetch allows; ``no-pull``, its prefetch is 0 and it has asked for no message; ``stand-by``,
    other consumers are served first. Of the source: ``nothing-waits``, and the causes of a blocked queue.
    """

    cause: Annotated[str, doc("One of the causes above.")]
    text: Annotated[str, doc("The cause in words.")]


_TEXTS = {
    "paused": "its queue is paused",
    "damaged-record": "the next message cannot be read",
    "store-failed": "the store cannot be read or written",
    "memory-limit": "the next message finds no memory",
    "waiting-for-consumers": "the queue waits for more consumers before it begins",
    "redelivery-delay": "a message that waits for its redelivery holds back all later ones",
    "parked-limit": "too many messages are parked: no consumer takes them",
    "ack-set-full": "too many messages were acknowledged out of order",
    "no-matching-consumer": "no selector matches the first message",
    "group-owner-busy": "the consumer that owns the message group of the first message has no credit",
    "consumer-busy": "no consumer that matches the first message has credit",
}


class Waits:
    """Tells why the consumers of one source are given nothing; what holds for all of them is found once."""

    def __init__(self, broker: "Broker", source: Any) -> None:
        self._source = source
        self._blocked = self._eligible = None
        if isinstance(source, LaneDispatch):
            self._blocked = blocked(broker, source)
            self._eligible = set(map(id, source.dispatcher.round_robin.ready(source.policy)))

    def of(self, subscription: "Subscription") -> Wait | None:
        """Why a consumer is given nothing; None if nothing keeps messages from it."""
        return self._by_consumer(subscription) or self._by_source(subscription)

    def _by_consumer(self, subscription: "Subscription") -> Wait | None:
        in_flight = len(subscription.in_flight)
        if not subscription.session.writable:
            return Wait("connection-full", "its connection takes no more output: the client does not read it")
        if subscription.credit > 0:
            return None
        if subscription.prefetch:
            text = f"it has {in_flight} messages that are not acknowledged, and its prefetch is {subscription.prefetch}"
            return Wait("prefetch-full", text)
        return Wait("no-pull", "its prefetch is 0, and it has asked for no message")

    def _by_source(self, subscription: "Subscription") -> Wait | None:
        source = self._source
        if source.depth <= source.in_flight:
            return Wait("nothing-waits", "no message waits")
        if self._blocked is not None:
            return Wait(self._blocked.cause, _TEXTS[self._blocked.cause])
        if self._eligible is not None and id(subscription) not in self._eligible:
            return Wait("stand-by", "other consumers are served first: exclusive ones, or those of a higher priority")
        return None


def cause_text(broker: "Broker", source: Any) -> str:
    """Why the messages of a queue or subscription are not taken, in words; empty if nothing is known."""
    if not isinstance(source, LaneDispatch):
        return ""
    if source.in_flight >= source.depth:
        return "all of them are with consumers, which have not acknowledged them"
    found = blocked(broker, source)
    return "" if found is None else _TEXTS[found.cause]
