"""The consumers of one STOMP connection: SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, and the MESSAGE frames they get.

In 1.2 the ``ack`` header of a MESSAGE is the message's sequence; ``-`` and the subscription's number follow from the
second subscription of a connection on. In 1.0 and 1.1 messages are acknowledged by message id.
"""

from typing import TYPE_CHECKING

from quire.broker.routing import queue_name
from quire.broker.stomp_route import whole_number
from quire.broker.subscription import AckMode, Subscription
from quire.errors import InvalidHeader, LimitExceeded, UnknownMessage, UnknownSubscription
from quire.message import Message, header_lines
from quire.protocols.stomp.encoder import content_for
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.versions import Version
from quire.selectors import selector

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.stomp_session import StompSession


MAX_SETTLED_IDS = 1000
"""Of so many messages that were settled without their id (in a transaction, by UNSUBSCRIBE) the ids may be kept."""

MAX_SUBSCRIPTIONS = 1000
"""How many subscriptions a connection may have."""


class StompConsumers:
    """The consumers of a session.

    Args:
        broker: the core.
        session: the session.

    Attributes:
        subscriptions: by id.
        by_message_id: what 1.0 and 1.1 acknowledge by; it may have some that were settled otherwise, a bounded number.
    """

    def __init__(self, broker: "Broker", session: "StompSession") -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._broker = broker
        self._session = session
        self._numbers: dict[int, Subscription] = {}
        self._next_number = 0
        self.by_message_id: dict[str, tuple[Subscription, int]] = {}

    def subscribe(self, head: Head) -> None:
        """A SUBSCRIBE frame.

        Raises:
            InvalidHeader: a header's value cannot be read, or the id is taken.
        """
        headers = head.headers
        id = headers.get("id", headers["destination"])
        if "browser" in headers:
            raise InvalidHeader("browser is not supported on SUBSCRIBE in this version", header="browser")
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise LimitExceeded(
                f"{MAX_SUBSCRIPTIONS} subscriptions are the limit of a connection", limit=MAX_SUBSCRIPTIONS
            )
        if id in self.subscriptions:
            raise InvalidHeader(f"there is a subscription {id[:60]!r} already", header="id")
        try:
            ack = AckMode(headers.get("ack", "auto"))
        except ValueError:
            text = f"ack is {headers['ack'][:60]!r}: write auto, client or client-individual"
            raise InvalidHeader(text, header="ack") from None
        queue = self._broker.queue(queue_name(headers["destination"]))
        prefetch = queue.policy.queue_prefetch
        subscription = Subscription(
            self._session, queue, id=id, number=self._next_number,
            ack=ack, prefetch=whole_number(headers, "activemq.prefetchSize", prefetch, 1, 1_000_000),
            selector=selector(headers["selector"]) if headers.get("selector", "").strip() else None,
            priority=whole_number(headers, "activemq.priority", 0, -128, 127),
            exclusive=headers.get("activemq.exclusive", "").lower() == "true",
        )  # fmt: skip
        subscription.prefix = self._prefix(subscription, named="id" in headers)
        self.subscriptions[id] = self._numbers[self._next_number] = subscription
        self._next_number += 1
        queue.add(subscription)

    def _prefix(self, subscription: Subscription, *, named: bool) -> bytes:
        """What all MESSAGE frames of a subscription begin with; in 1.2 up to the sequence in the ``ack`` header."""
        headers = {"subscription": subscription.id} if named else {}
        headers["destination"] = f"/queue/{subscription.source.destination.name}"
        prefix = content_for(b"MESSAGE\n" + header_lines(headers) + b"\n\n", self._session.version)[:-2]
        return prefix + b"ack:" if self._session.version is Version.V1_2 else prefix

    def unsubscribe(self, head: Head) -> None:
        """An UNSUBSCRIBE frame.

        Raises:
            UnknownSubscription: there is none of that id.
        """
        id = head.headers.get("id", head.headers.get("destination", ""))
        subscription = self.subscriptions.pop(id, None)
        if subscription is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r}", id=id[:60])
        del self._numbers[subscription.number]
        subscription.source.remove(subscription, "the consumer unsubscribed", lost=False)

    def leave(self, cause: str, *, lost: bool) -> None:
        """All consumers go.

        Args:
            cause: why.
            lost: whether they vanished without a word.
        """
        for subscription in self.subscriptions.values():
            subscription.source.remove(subscription, cause, lost=lost)
        self.subscriptions.clear()
        self._numbers.clear()

    # ACK and NACK.

    def acknowledge_run(self, ids: list[bytes]) -> None:
        """A run of ACK frames with nothing but an id: nearly all acknowledgements there are.

        Raises:
            UnknownMessage: one of them is not in flight here. The others are acknowledged.
        """
        only = self._numbers.get(0) if len(self._numbers) == 1 else None
        if only is None or only.ack is not AckMode.INDIVIDUAL:
            for id in ids:
                self.acknowledge(*self._by_ack_id(id.decode()))
            return
        try:
            sequences = [int(id) for id in ids]
        except ValueError:
            raise _unknown(b" ".join(ids)[:60].decode()) from None
        messages = only.take(sequences)
        only.source.acknowledge(messages)
        if len(messages) < len(ids):
            raise _unknown(str(_first_missing(sequences, messages)))

    def find(self, head: Head) -> tuple[Subscription, list[int]]:
        """The messages that an ACK or NACK frame is about: one, or in ``client`` mode all up to it.

        Raises:
            UnknownMessage: it is not in flight here.
        """
        headers = head.headers
        if self._session.version is Version.V1_2:
            return self._by_ack_id(headers["id"])
        id = headers["message-id"]
        subscription, sequence = self.by_message_id.get(id, (None, 0))
        if subscription is None or headers.get("subscription", subscription.id) != subscription.id:
            raise _unknown(id)
        return subscription, self._covered(subscription, sequence, id)

    def _by_ack_id(self, id: str) -> tuple[Subscription, list[int]]:
        sequence, _, number = id.partition("-")
        if not (id.isascii() and sequence.isdecimal() and (number or "0").isdecimal()):
            raise _unknown(id)
        subscription = self._numbers.get(int(number or "0"))
        if subscription is None:
            raise _unknown(id)
        return subscription, self._covered(subscription, int(sequence), id)

    def _covered(self, subscription: Subscription, sequence: int, id: str) -> list[int]:
        if sequence not in subscription.in_flight:
            raise _unknown(id)
        return subscription.up_to(sequence) if subscription.ack is AckMode.CLIENT else [sequence]

    def acknowledge(self, subscription: Subscription, sequences: list[int]) -> None:
        """Settle messages as done."""
        subscription.source.acknowledge(self._take(subscription, sequences))

    def reject(self, subscription: Subscription, sequences: list[int], delay_ms: int | None = None) -> None:
        """Settle messages as failed: they are delivered again, or become dead letters.

        Args:
            subscription: whose they are.
            sequences: which.
            delay_ms: how long they are to wait, in milliseconds; None for what the policy says.
        """
        messages = self._take(subscription, sequences)
        cause = "rejected by the consumer"
        subscription.source.take_back(messages, len(messages), cause, at_once=False, delay_ms=delay_ms)

    def _take(self, subscription: Subscription, sequences: list[int]) -> list[Message]:
        messages = subscription.take(sequences)
        if self._session.version is not Version.V1_2:
            for message in messages:
                self.by_message_id.pop(message.id, None)
        return messages

    # MESSAGE.

    def frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages, in pieces to be joined."""
        if self._session.version is not Version.V1_2:
            return self._old_frames(subscription, messages, extra)
        between = b"\0" + subscription.prefix
        end_of_id = (b"\n" if subscription.number == 0 else b"-%d\n" % subscription.number) + extra
        pieces = [subscription.prefix]
        append = pieces.append
        for message in messages:
            append(b"%d" % message.sequence + end_of_id)
            if message.redelivered:
                append(_redelivery(message))
            append(message.content)
            append(between)
        pieces[-1] = b"\0"
        return pieces

    def marker(self, subscription: Subscription, headers: bytes) -> bytes:
        """A MESSAGE frame that stands for no message.

        Args:
            subscription: whose consumer it is for.
            headers: header lines that say what it means.
        """
        ids = b"-\n" if self._session.version is Version.V1_2 else b""
        return subscription.prefix + ids + b"message-id:\n" + headers + b"\n\0"

    def _old_frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        pieces = []
        if len(self.by_message_id) > MAX_SETTLED_IDS + 2 * sum([len(s.in_flight) for s in self.subscriptions.values()]):
            known = self.by_message_id.items()
            self.by_message_id = {id: (s, sequence) for id, (s, sequence) in known if sequence in s.in_flight}
        for message in messages:
            if subscription.ack is not AckMode.AUTO:
                self.by_message_id[message.id] = (subscription, message.sequence)
            content = content_for(message.content, self._session.version)
            flag = _redelivery(message) if message.redelivered else b""
            pieces += [subscription.prefix, extra, flag, content, b"\0"]
        return pieces


def _redelivery(message: Message) -> bytes:
    """The headers of a message that may have been delivered before (JMS 2.0, 3.5.11: the count is then at least 2)."""
    return b"redelivered:true\nJMSXDeliveryCount:%d\n" % (max(message.deliveries, 1) + 1)


def _first_missing(sequences: list[int], taken: list[Message]) -> int:
    """Which of a run's sequences was not in flight, or not any more when it came a second time."""
    left = {message.sequence for message in taken}
    for sequence in sequences:
        if sequence not in left:
            return sequence
        left.remove(sequence)
    raise AssertionError("all were in flight")


def _unknown(id: str) -> UnknownMessage:
    return UnknownMessage(f"{id[:60]!r} is not in flight on this connection: acknowledge a message once", id=id[:60])
