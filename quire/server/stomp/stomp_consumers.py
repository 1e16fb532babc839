"""The consumers of one STOMP connection: SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, pulls, and the MESSAGE frames they get.

In 1.2 the ``ack`` header of a MESSAGE is the message's sequence; ``-`` and the subscription's number follow from the
second subscription of a connection on. In 1.0 and 1.1 messages are acknowledged by message id. The frames that stand
for no message (the end of a browse, a pull in vain) have ``0`` for both; acknowledging them does nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.broker.acknowledgement import Pull
from quire.broker.queues.queue_browser import Browser
from quire.broker.routing.route import whole_number
from quire.broker.routing.wildcard import WildcardSubscription
from quire.broker.shared_prefetch import ChildSubscription
from quire.broker.streams.groups.group_member import GroupMember
from quire.broker.streams.groups.member_subscription import MemberSubscription
from quire.broker.subscription import AckMode, Subscription
from quire.broker.transactions.rolled_back import RolledBack
from quire.destination import DestinationKind
from quire.errors import InvalidHeader, LimitExceeded, UnknownMessage, UnknownSubscription
from quire.message import Message, escape, unescape
from quire.protocols.stomp.encoder import content_for
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.versions import Version
from quire.server.stomp.consumer_maker import ConsumerMaker
from quire.server.stomp.member_acknowledgements import Covered, MemberAcknowledgements, MessageIds, left_over
from quire.server.stomp.stomp_member import USUAL_STAMPS, StompMember, redelivery, stamps
from quire.server.stomp.stomp_rejection import Rejection
from quire.server.stomp.stomp_subscribe import SubscribeRequest, durable_name, read_subscribe
from quire.units import MAX_DIGITS, parse_number

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.server.stomp.stomp_session import StompSession


MAX_SETTLED_IDS = 1000
"""Of so many messages that were settled without their id (in a transaction, by UNSUBSCRIBE) the ids may be kept."""

MAX_SELECTORS = 100_000
"""How many characters the selectors of a connection may have together: each takes up to 200 bytes of memory."""

MAX_SUBSCRIPTIONS = 1000
"""How many subscriptions a connection may have."""

MAX_WAIT = 365 * 86_400_000
"""How long a pull may wait, in milliseconds."""

PULL = "/pull/"
"""A SEND to this and a subscription's id asks for messages."""

NO_MESSAGE = "0"
"""What stands for both ids in a frame that is no message: no sequence and no message id is ever so."""

Consumer = Subscription | WildcardSubscription | GroupMember
"""What a subscription of the client is here."""


class StompConsumers:
    """The consumers of a session.

    Args:
        broker: the core.
        session: the session.

    Attributes:
        subscriptions: all there are, by number; one to several destinations has one for each.
        rolled_back: what transactions gave back and may be acknowledged late.
        by_message_id: what 1.0 and 1.1 acknowledge by; it may have some that were settled otherwise, a bounded number.
    """

    def __init__(self, broker: "Broker", session: "StompSession") -> None:
        self.subscriptions: dict[int, Subscription] = {}
        self.rolled_back = RolledBack()
        self.by_message_id: MessageIds = {}
        self._broker = broker
        self._session = session
        self._by_id: dict[str, Consumer] = {}
        self._namesakes: list[tuple[str, Consumer]] = []  # those whose id a later subscription has too
        self._selectors: dict[str, int] = {}  # how long each is, by subscription
        self._of_members = MemberAcknowledgements(self._by_id)
        self._maker = ConsumerMaker(broker, session, self.subscriptions, self._of_members.members)
        self._pulls: dict[str, Pull] = {}

    def subscribe(self, head: Head) -> None:
        """A SUBSCRIBE frame.

        Raises:
            InvalidDestination: it cannot be subscribed to.
            InvalidHeader: a header's value cannot be read, or the id is taken.
            LimitExceeded: the connection has too many subscriptions.
        """
        request = read_subscribe(head, self._session.version)
        if len(self._by_id) + len(self._namesakes) >= MAX_SUBSCRIPTIONS:
            raise LimitExceeded(
                f"{MAX_SUBSCRIPTIONS} subscriptions are the limit of a connection", limit=MAX_SUBSCRIPTIONS
            )
        before = self._by_id.get(request.id)
        if before is not None and (isinstance(before, GroupMember) or request.membership is not None):
            raise InvalidHeader(f"there is a subscription {request.id[:60]!r} already", header="id")
        length = 0 if request.selector is None else len(request.selector.text)
        if sum(self._selectors.values()) + length > MAX_SELECTORS:
            text = f"the selectors of a connection may have {MAX_SELECTORS} characters together"
            raise LimitExceeded(text, limit=MAX_SELECTORS)
        self._by_id[request.id] = self._made(request)
        if before is not None:
            self._namesakes.append((request.id, before))
        if length:
            self._selectors[request.id] = self._selectors.get(request.id, 0) + length

    def when_subscribed(self, head: Head, call: Callable[[], None]) -> bool:
        """Make a call when a SUBSCRIBE frame that was taken is done; False if it is already."""
        consumer = self._by_id.get(head.headers.get("id", head.headers["destination"]))
        return isinstance(consumer, WildcardSubscription) and consumer.when_started(call)

    def _made(self, request: SubscribeRequest) -> Consumer:
        if request.membership is not None:
            return self._maker.member(request, request.membership)
        if request.browser:
            return self._maker.browser(request, self.marker)
        return self._maker.consumer(request) if request.is_single else self._maker.wildcard(request)

    def unsubscribe(self, head: Head) -> None:
        """An UNSUBSCRIBE frame; one that names a durable subscription removes it.

        Raises:
            UnknownSubscription: there is none of that id, or of that name.
        """
        headers = head.headers
        id = headers.get("id", headers.get("destination", ""))
        consumer = self._by_id.get(id)
        self._selectors.pop(id, None)
        of_queue = isinstance(consumer, Subscription) and consumer.source.destination.kind is DestinationKind.QUEUE
        durable = durable_name(headers, of_queue=of_queue)
        if isinstance(consumer, GroupMember):
            del self._by_id[id]
            consumer.group.leave(consumer, "the consumer unsubscribed")
        elif consumer is not None:
            for namesake in [self._by_id.pop(id), *[other for name, other in self._namesakes if name == id]]:
                self._end(id, namesake, "the consumer unsubscribed", lost=False)
            self._namesakes = [entry for entry in self._namesakes if entry[0] != id]
        elif durable is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r}", id=id[:60])
        if durable is not None:
            self._maker.remove_durable(durable)

    def leave(self, cause: str, *, lost: bool) -> None:
        """All consumers go.

        Args:
            cause: why.
            lost: whether they vanished without a word.
        """
        consumers = [*self._by_id.items(), *self._namesakes]
        self._by_id.clear()
        self._namesakes.clear()
        for id, consumer in consumers:
            self._end(id, consumer, cause, lost=lost)

    def _end(self, id: str, consumer: "Consumer", cause: str, *, lost: bool) -> None:
        if isinstance(consumer, GroupMember):
            consumer.group.connection_lost(consumer, cause, lost=lost)
            return
        if pull := self._pulls.pop(id, None):
            pull.cancel()
        if isinstance(consumer, Subscription):
            self._maker.end(consumer, cause, lost=lost)
            self.rolled_back.forget({consumer})
        else:
            self.rolled_back.forget(set(consumer.children.values()))
            self._maker.end_wildcard(consumer, cause, lost=lost)

    def wake(self) -> None:
        """The connection takes output again: consumers may be given messages."""
        for consumer in [*self._by_id.values(), *[namesake for _, namesake in self._namesakes]]:
            if isinstance(consumer, Subscription):
                consumer.source.wake()
            else:
                consumer.wake()

    def pull(self, head: Head) -> None:
        """A SEND frame to ``/pull/ID``: a consumer with prefetch 0 asks for messages.

        Raises:
            UnknownSubscription: there is none of that id.
            InvalidHeader: a value cannot be read, or the consumer has a prefetch.
        """
        headers = head.headers
        id = headers["destination"].removeprefix(PULL)
        consumer = self._by_id.get(id)
        if consumer is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r} to pull for", id=id[:60])
        if not isinstance(consumer, Subscription) or consumer.prefetch:
            text = f"the subscription {id[:60]!r} is not one that pulls: subscribe with activemq.prefetchSize:0"
            raise InvalidHeader(text, header="destination")
        quantity = whole_number(headers, "quantity", 1, 1, 1_000_000)
        timeout = whole_number(headers, "timeout", 0, -1, MAX_WAIT)
        if before := self._pulls.pop(id, None):
            before.cancel()
        self._pulls[id] = Pull(consumer, quantity, timeout)

    # ACK and NACK.

    def acknowledge_run(self, ids: list[bytes]) -> None:
        """A run of ACK frames with nothing but an id: nearly all acknowledgements there are.

        Raises:
            UnknownMessage: one of them is not in flight here. The others are acknowledged.
        """
        if b"." in ids[0]:
            ids = self._of_members.acknowledge_run(ids)
        only = self.subscriptions.get(0) if len(self.subscriptions) == 1 else None
        if only is None or only.ack is not AckMode.INDIVIDUAL or isinstance(only, MemberSubscription):
            self._acknowledge_each(ids)
            return
        try:
            sequences = [int(id) for id in ids]
        except ValueError:
            self._acknowledge_each(ids)
            return
        messages = only.take(sequences)
        only.source.acknowledge(messages)
        if len(messages) < len(ids):
            taken = {message.sequence for message in messages}
            self._acknowledge_each([b"%d" % sequence for sequence in left_over(sequences, taken)])

    def _acknowledge_each(self, ids: list[bytes]) -> None:
        """Acknowledge some of several subscriptions; the first that is unknown is told when all others are done."""
        unknown: UnknownMessage | None = None
        for id in self._acknowledge_at_once(ids):
            try:
                for subscription, sequences in self._by_ack_id(unescape(id).decode()):
                    self.acknowledge(subscription, sequences)
            except UnknownMessage as error:
                unknown = unknown or error
        if unknown is not None:
            raise unknown

    def _acknowledge_at_once(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge the messages of each subscription at once.

        Returns:
            The ids of those that have to be looked at one after the other.
        """
        runs: dict[bytes, tuple[Subscription | None, list[int]]] = {}
        others: list[bytes] = []
        for id in ids:
            sequence, _, number = id.partition(b"-")
            run = runs.get(number)
            if run is None:
                run = runs[number] = self._numbered(number or b"0"), []
            if run[0] is None or not (sequence.isdigit() and len(sequence) < MAX_DIGITS):
                others.append(id)
            else:
                run[1].append(int(sequence))
        for subscription, sequences in runs.values():
            if subscription is not None and sequences:
                messages = subscription.take(sequences)
                subscription.source.acknowledge(messages)
                if len(messages) < len(sequences):
                    left = left_over(sequences, {message.sequence for message in messages})
                    end = b"-%d" % subscription.number if subscription.number else b""
                    others += [b"%d%b" % (sequence, end) for sequence in left]
        return others

    def _numbered(self, number: bytes) -> Subscription | None:
        """The subscription of a number, if each of its messages is acknowledged by itself and in the usual way."""
        found = self.subscriptions.get(int(number)) if number.isdigit() and len(number) < MAX_DIGITS else None
        is_usual = found is not None and found.ack is AckMode.INDIVIDUAL and not isinstance(found, MemberSubscription)
        return found if is_usual else None

    def find(self, head: Head, *, acknowledges: bool = True) -> Covered:
        """The messages that an ACK or NACK frame is about: one, or in ``client`` mode all up to it.

        Args:
            head: the frame's.
            acknowledges: whether it is an ACK outside of transactions; then a late one of a group's member may count.

        Raises:
            UnknownMessage: it is not in flight here.
        """
        headers = head.headers
        if self._session.version is Version.V1_2:
            return self._by_ack_id(headers["id"], acknowledges=acknowledges)
        id = headers["message-id"]
        if id == NO_MESSAGE:
            return []
        return self._by_message_id(id, headers.get("subscription"), acknowledges=acknowledges)

    def _by_message_id(self, id: str, wanted: str | None, *, acknowledges: bool) -> Covered:
        known = self._given(id, wanted)
        if not known:
            self._of_members.enter_held(self.by_message_id)
            known = self._given(id, wanted)
        for subscription, sequence in known:
            if sequence in subscription.in_flight:
                return self._covered(subscription, sequence, id)
        if not known:
            if self._of_members.is_stale(wanted):
                return []
            raise _unknown(id)
        subscription, sequence = known[-1]
        if isinstance(subscription, MemberSubscription):
            return self._of_members.late(subscription, sequence, acknowledges=acknowledges)
        return self._covered(*known[0], id)

    def _given(self, id: str, wanted: str | None) -> list[tuple[Subscription, int]]:
        """Who was given a message of an id, and its sequence; of one subscription if the frame names it."""
        return [entry for entry in self.by_message_id.get(id, ()) if wanted in (None, entry[0].id)]

    def _by_ack_id(self, id: str, *, acknowledges: bool = True) -> Covered:
        if id == NO_MESSAGE:
            return []
        if (covered := self._of_members.covered(escape(id.encode()), acknowledges=acknowledges)) is not None:
            return covered
        first, _, second = id.partition("-")
        sequence, number = parse_number(first), parse_number(second or "0")
        subscription = None if number is None else self.subscriptions.get(number)
        if sequence is None or subscription is None or isinstance(subscription, MemberSubscription):
            raise _unknown(id)
        return self._covered(subscription, sequence, id)

    def _covered(self, subscription: Subscription, sequence: int, id: str) -> Covered:
        if sequence not in subscription.in_flight:
            late = self.rolled_back.covered(subscription, sequence)
            if not late:
                raise _unknown(id)
            return [(subscription, late)]
        if subscription.ack is not AckMode.CLIENT:
            return [(subscription, [sequence])]
        if isinstance(subscription, ChildSubscription):
            return subscription.parent.up_to(subscription, sequence)
        return [(subscription, subscription.up_to(sequence))]

    def acknowledge(self, subscription: Subscription, sequences: list[int]) -> None:
        """Settle messages as done; those that a rollback gave back too, if they still wait."""
        messages = self._take(subscription, sequences)
        subscription.source.acknowledge(messages)
        if len(messages) < len(sequences):
            self.rolled_back.settle(subscription, sequences)

    def reject(self, subscription: Subscription, sequences: list[int], rejection: Rejection) -> None:
        """Settle messages as failed: they are delivered again, or become dead letters. Or extend the leases on them.

        Args:
            subscription: whose they are.
            sequences: which.
            rejection: what is to become of them.

        Raises:
            InvalidHeader: a lease is to be extended where there is none.
        """
        if rejection.extend_ms is not None:
            if not isinstance(subscription, MemberSubscription):
                raise InvalidHeader("extend is for members of a group: a queue has no leases", header="extend")
            held = [m for s in sequences if (m := subscription.in_flight.get(s)) is not None]
            subscription.member.extend(subscription, held, rejection.extend_ms / 1000)
            return
        messages = self._take(subscription, sequences)
        cause = "rejected by the consumer"
        if rejection.dead_letter:
            subscription.source.bury(messages, "failed", cause)
        else:
            subscription.source.take_back(messages, len(messages), cause, at_once=False, delay_ms=rejection.delay_ms)

    def check_rejectable(self, covered: Covered) -> None:
        """See that messages can be rejected.

        Raises:
            InvalidHeader: they were only shown.
        """
        if any([isinstance(subscription.source, Browser) for subscription, _ in covered]):
            raise InvalidHeader("a browser's messages cannot be rejected: they are still in their queue", header="id")

    def _take(self, subscription: Subscription, sequences: list[int]) -> list[Message]:
        messages = subscription.take(sequences)
        if self._session.version is not Version.V1_2:
            for message in messages:
                entries = self.by_message_id.get(message.id, [])
                entries[:] = [entry for entry in entries if entry != (subscription, message.sequence)]
                if not entries:
                    self.by_message_id.pop(message.id, None)
        return messages

    # MESSAGE.

    def frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages, in pieces to be joined."""
        if isinstance(subscription, MemberSubscription):
            port = subscription.member.port
            assert isinstance(port, StompMember)
            if subscription.ack is not AckMode.AUTO and self._session.version is not Version.V1_2:
                self._forget_settled_ids()
                for message in messages:
                    self.by_message_id.setdefault(message.id, []).append((subscription, message.sequence))
            pieces = port.frames(subscription, messages, extra)
            return [own.localized(piece) for piece in pieces] if (own := self._session.temporaries) else pieces
        if isinstance(subscription, ChildSubscription) and subscription.ack is not AckMode.AUTO:
            subscription.parent.given(subscription, messages)
        if self._session.version is not Version.V1_2:
            return self._old_frames(subscription, messages, extra)
        between = b"\0" + subscription.prefix
        end_of_id = b"\n" if subscription.number == 0 else b"-%d\n" % subscription.number
        usual = end_of_id + USUAL_STAMPS + extra
        pieces = [subscription.prefix]
        append = pieces.append
        for message in messages:
            if message.priority == 4 and not message.expiration:
                append(b"%d" % message.sequence + usual)
            else:
                append(b"%d" % message.sequence + end_of_id + stamps(message) + extra)
            if message.redelivered:
                append(redelivery(message))
            append(message.content)
            append(between)
        pieces[-1] = b"\0"
        if own := self._session.temporaries:
            return [own.localized(piece) for piece in pieces]
        return pieces

    def marker(self, subscription: Subscription, headers: bytes) -> bytes:
        """A MESSAGE frame that stands for no message.

        Args:
            subscription: whose consumer it is for.
            headers: header lines that say what it means.
        """
        id = NO_MESSAGE.encode() + b"\n"
        ack = id if self._session.version is Version.V1_2 else b""
        return subscription.prefix + ack + b"message-id:" + id + headers + b"\n\0"

    def _old_frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        pieces = []
        self._forget_settled_ids()
        own = self._session.temporaries
        for message in messages:
            if subscription.ack is not AckMode.AUTO:
                self.by_message_id.setdefault(message.id, []).append((subscription, message.sequence))
            content = own.localized(message.content) if own else message.content
            flag = redelivery(message) if message.redelivered else b""
            pieces += [
                subscription.prefix,
                stamps(message),
                extra,
                flag,
                content_for(content, self._session.version),
                b"\0",
            ]
        return pieces

    def _forget_settled_ids(self) -> None:
        """Keep no more than a bounded number of ids of messages that were settled without them."""
        in_flight = sum([len(subscription.in_flight) for subscription in self.subscriptions.values()])
        if len(self.by_message_id) <= MAX_SETTLED_IDS + 2 * in_flight:
            return
        kept = {}
        for id, entries in self.by_message_id.items():
            if left := [entry for entry in entries if entry[1] in entry[0].in_flight]:
                kept[id] = left
        self.by_message_id = kept


def _unknown(id: str) -> UnknownMessage:
    return UnknownMessage(f"{id[:60]!r} is not in flight on this connection: acknowledge a message once", id=id[:60])
