"""SUBSCRIBE, UNSUBSCRIBE and the SEND frames that pull: what their headers say, and the consumers of a connection."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.routing.route import whole_number
from quire.broker.streams.groups.group_definition import Mode, Order
from quire.broker.streams.groups.group_partition import NOTHING, read_held
from quire.broker.streams.partition import Start
from quire.destination import DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination, InvalidHeader, LimitExceeded, UnknownSubscription
from quire.logs import event
from quire.message import header_lines
from quire.protocols.stomp.frames import Head, Version
from quire.selectors import selector
from quire.server.stomp.stomp_frames import NO_MESSAGE, Client, frame_start, marker, writer_of
from quire.sessions.base import Consumer, ConsumerKind, Membership, Part, Session, SubscribeSpec
from quire.units import parse_duration

MAX_PREFETCH = 1_000_000
"""The most messages a consumer may ask to have in flight."""

MAX_SUBSCRIPTIONS = 1000
"""How many subscriptions a connection may have."""

MAX_WAIT = 365 * 86_400_000
"""How long a pull may wait, in milliseconds."""

MAX_NAME = 200
"""The longest name of a member, in characters."""

MAX_TIMEOUT = 7 * 86_400.0
"""The longest consume timeout a client may ask for, in seconds."""

PULL = "/pull/"
"""A SEND to this and a subscription's id asks for messages."""

_ANY_PREFETCH = (1 << 31) - 1
_NAMES = ("activemq.subscriptionName", "durable-subscription-name")
_DURABLE = ("durable", "persistent")
_EVENT = "event"  # the header of a MESSAGE frame that is no message: what has happened to the member


# What headers say.


def read_subscribe(head: Head, version: Version) -> tuple[SubscribeSpec, bool]:
    """Understand a SUBSCRIBE frame. A header stands over the destination's option that means the same.

    Returns:
        What is wanted, and whether the client has named it; in 1.0 it need not.

    Raises:
        InvalidDestination: the destination is none.
        InvalidHeader: a header's value cannot be read, or makes no sense with the destination.
        InvalidSelector: the selector cannot be read.
    """
    addresses, options = read_destination(head.headers["destination"])
    headers = {**options, **head.headers}
    text = headers.get("selector", "")
    browser = is_true(headers, "browser")
    durable = durable_name(headers, of_queue=addresses[0].kind is not DestinationKind.TOPIC)
    membership = read_membership(headers) if addresses[0].kind is DestinationKind.STREAM else None
    kind = ConsumerKind.PLAIN if durable is None else ConsumerKind.DURABLE
    if membership is not None:
        kind = ConsumerKind.READER if membership.group is None else ConsumerKind.MEMBER
    spec = SubscribeSpec(
        id=headers.get("id", headers["destination"]),
        addresses=tuple(addresses),
        kind=ConsumerKind.BROWSER if browser else kind,
        ack=_ack_mode(headers),
        prefetch=read_prefetch(headers),
        selector=selector(text) if text.strip() else None,
        priority=_number(headers, "activemq.priority", -128, 127) or 0,
        exclusive=is_true(headers, "activemq.exclusive"),
        no_local=is_true(headers, "activemq.noLocal") or is_true(headers, "no-local"),
        retroactive=is_true(headers, "activemq.retroactive"),
        maximum_pending=_number(headers, "activemq.maximumPendingMessageLimit", -1, 1 << 31),
        name=durable,
        membership=membership,
        tracked=version is not Version.V1_2,
    )
    _check(spec, version)
    return spec, "id" in headers


def durable_name(headers: Mapping[str, str], *, of_queue: bool) -> str | None:
    """The name of the durable subscription that SUBSCRIBE or UNSUBSCRIBE is about; None if it is about none.

    It stands in a header of ActiveMQ's or Artemis'. With one of RabbitMQ's, which only says that there is one, it is
    the id; of a queue those headers say nothing that matters here.

    Args:
        of_queue: whether the frame is about a queue.

    Raises:
        InvalidHeader: the name is empty.
    """
    header = next((header for header in _NAMES if header in headers), "")
    if not header:
        if of_queue or not any([is_true(headers, durable) for durable in _DURABLE]):
            return None
        header = "id"
    name = headers.get(header, "")
    if not name:
        raise InvalidHeader(f"a durable subscription needs a name: {header}", header=header)
    return name


def is_true(headers: Mapping[str, str], name: str) -> bool:
    """Whether a header that is ``true`` or ``false`` is true; without it, it is not."""
    text = headers.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidHeader(f"{name} is {text[:60]!r}: write true or false", header=name)
    return text == "true"


def _number(headers: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A header that is a number; None if it is none or out of its range: it is as if it were not there (ActiveMQ)."""
    try:
        return whole_number(headers, name, 0, least, most) if name in headers else None
    except InvalidHeader as error:
        text = f"a consumer of {headers['destination'][:100]!r} asked for what is not possible: {error}"
        event("consumer.unknown-number", text, logging.WARNING)
        return None


def read_prefetch(headers: Mapping[str, str]) -> int | None:
    """What ActiveMQ's header says, or RabbitMQ's, whose 0 is no limit; None if neither says anything."""
    prefetch = _number(headers, "activemq.prefetchSize", 0, _ANY_PREFETCH)
    if prefetch is None:
        prefetch = _number(headers, "prefetch-count", 0, _ANY_PREFETCH)
        prefetch = MAX_PREFETCH if prefetch == 0 else prefetch
    return None if prefetch is None else min(prefetch, MAX_PREFETCH)


def _ack_mode(headers: Mapping[str, str]) -> AckMode:
    """What the header says; ``auto`` if it says anything else, as in ActiveMQ."""
    try:
        return AckMode(headers.get("ack", "auto").strip().lower())
    except ValueError:
        text = f"a consumer of {headers['destination'][:100]!r} asked for the unknown ack mode {headers['ack'][:60]!r}"
        event("consumer.unknown-ack", f"{text}: its messages are done when they are sent", logging.WARNING)
        return AckMode.AUTO


def _check(spec: SubscribeSpec, version: Version) -> None:
    kinds, is_single = {address.kind for address in spec.addresses}, is_of_one(spec)
    browser = spec.kind is ConsumerKind.BROWSER
    wrong = ""
    if DestinationKind.STREAM in kinds and (browser or spec.prefetch == 0 or not is_single):
        wrong = "a stream is subscribed to alone, by its name; it is not browsed, and there is no prefetch of 0"
    elif browser:
        if version is Version.V1_0:
            wrong = "browser needs STOMP 1.1 or later: what is shown is told apart by the header subscription"
        elif kinds != {DestinationKind.QUEUE} or not is_single:
            wrong = "browser shows one queue; topics and wildcards cannot be browsed"
    elif spec.name is not None and (kinds != {DestinationKind.TOPIC} or not is_single):
        wrong = "a durable subscription is to one topic; queues keep their messages anyway"
    elif spec.no_local and DestinationKind.QUEUE in kinds:
        wrong = "noLocal is for topics: a queue gives each message to one consumer, which may be the one that sent it"
    elif spec.prefetch == 0 and not is_single:
        wrong = "activemq.prefetchSize:0 needs one destination: a pull from several is not possible"
    if wrong:
        raise InvalidHeader(wrong, header="destination")


def is_of_one(spec: SubscribeSpec) -> bool:
    """Whether a consumer is one of one destination, known by its name."""
    return len(spec.addresses) == 1 and not Pattern(spec.addresses[0].name).is_wildcard


def is_of_member(spec: SubscribeSpec) -> bool:
    """Whether a consumer is a member of a group, or a reader of a stream."""
    return spec.membership is not None


def read_membership(headers: Mapping[str, str]) -> Membership:
    """Understand what a SUBSCRIBE frame to a stream says of the group, the member, where to start.

    Raises:
        InvalidHeader: a value cannot be read.
    """
    return Membership(
        group=_name(headers, "group"),
        member=_member(headers),
        start=_start(headers),
        mode=Mode(_word(headers, "mode", list(Mode)) or Mode.CLUSTERING),
        order=Order(order) if (order := _word(headers, "order", list(Order))) else None,
        consume_timeout=_timeout(headers),
        room=headers.get("room", ""),
        partitions=_partitions(headers),
        held=read_held(headers["held"]) if "held" in headers else NOTHING,
        events=is_true(headers, "events"),
    )


def _name(headers: Mapping[str, str], header: str) -> str | None:
    name = headers.get(header)
    if name is not None and not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise InvalidHeader(f"{header} is {name[:60]!r}: 1 to {MAX_NAME} printable characters", header=header)
    return name


def _member(headers: Mapping[str, str]) -> str | None:
    """The member's name. With a slash it could be that of a member without one, or of another broadcasting group."""
    name = _name(headers, "member")
    if name is not None and "/" in name:
        raise InvalidHeader(f"member is {name[:60]!r}: a name without a slash", header="member")
    return name


def _word(headers: Mapping[str, str], header: str, words: list[str]) -> str | None:
    word = headers.get(header)
    if word is not None and word not in words:
        raise InvalidHeader(f"{header} is {word[:60]!r}: write {', '.join(words)}", header=header)
    return word


def _start(headers: Mapping[str, str]) -> Start | None:
    try:
        if "start" in headers:
            return Start.parse(headers["start"])
        if "x-stream-offset" in headers:
            return Start.parse_stream_offset(headers["x-stream-offset"])
    except InvalidArgument as error:
        raise InvalidHeader(str(error), header="start") from error
    return None


def _timeout(headers: Mapping[str, str]) -> float | None:
    if "consume-timeout" not in headers:
        return None
    text = headers["consume-timeout"]
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= MAX_TIMEOUT:
        raise InvalidHeader(f"consume-timeout is {text[:60]!r}: a duration from 1s to 7d", header="consume-timeout")
    return seconds


def _partitions(headers: Mapping[str, str]) -> tuple[int, ...]:
    text = headers.get("partitions", "")
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in parts) or len(parts) > 1000:
        raise InvalidHeader(f"partitions is {text[:60]!r}: write their numbers, as 0,3", header="partitions")
    return tuple(int(part) for part in parts)


# The consumers.


class StompConsumer:
    """What a SUBSCRIBE frame has made.

    Attributes:
        spec: what it wants.
        consumer: the session's.
        parts: what a member has, by partition.
        asked: how many messages it has asked for last.
    """

    consumer: Consumer

    def __init__(self, spec: SubscribeSpec, shown: str | None, *, is_named: bool) -> None:
        self.spec = spec
        self.parts: dict[int, Part] = {}
        self.asked = 0
        self._shown = shown  # its destination, as the client has it; None if each part says its own
        self._is_named = is_named

    def start(self, version: Version, part: Part | None = None) -> bytes:
        """What the MESSAGE frames of a part begin with."""
        shown = self._shown
        if shown is None and part is not None:
            shown = str(Address(part.destination.kind, part.destination.name))
        return frame_start(self.spec, shown or str(self.spec.addresses[0]), version, is_named=self._is_named)


class StompConsumers:
    """The consumers of a client."""

    def __init__(self, session: Session, client: Client) -> None:
        self._session = session
        self._client = client
        self._by_id: dict[str, list[StompConsumer]] = {}
        self._known: dict[Consumer, StompConsumer] = {}
        self._coming: StompConsumer | None = None  # the one that is being subscribed

    def member(self, id: str) -> StompConsumer | None:
        """The member, or reader, of a subscription's id; None if there is none."""
        named = self._by_id.get(id)
        return named[0] if named is not None and is_of_member(named[0].spec) else None

    def members(self) -> Iterator[StompConsumer]:
        """All members and readers."""
        return (named[0] for named in self._by_id.values() if is_of_member(named[0].spec))

    def subscribe(self, head: Head, receipt: bytes | None) -> None:
        """A SUBSCRIBE frame; one that is refused leaves no consumer."""
        spec, is_named = read_subscribe(head, self._client.version)
        if sum([len(named) for named in self._by_id.values()]) >= MAX_SUBSCRIPTIONS:
            text = f"{MAX_SUBSCRIPTIONS} subscriptions are the limit of a connection"
            raise LimitExceeded(text, limit=MAX_SUBSCRIPTIONS)
        others = self._by_id.get(spec.id, [])
        if others and (is_of_member(spec) or is_of_member(others[0].spec)):
            raise InvalidHeader(f"there is a subscription {spec.id[:60]!r} already", header="id")
        if spec.name is not None:
            self._required_client_id()
        coming = self._coming = self._new(spec, is_named=is_named)
        try:
            coming.consumer = self._session.subscribe(coming.spec, receipt)
        finally:
            self._coming = None
        self._known[coming.consumer] = coming
        self._by_id[spec.id] = [coming, *others]

    def _new(self, spec: SubscribeSpec, *, is_named: bool) -> StompConsumer:
        """A consumer; one of a temporary destination has it by the client's name, and the session by the broker's."""
        first = spec.addresses[0]
        if not is_of_one(spec):
            temporary = next((address for address in spec.addresses if address.scope is not Scope.COMMON), None)
            if temporary is not None:
                text = f"{str(temporary)[:100]!r} is a temporary destination: subscribe to it alone"
                raise InvalidDestination(text, destination=str(temporary)[:100])
            return StompConsumer(spec, None, is_named=is_named)
        if first.scope is Scope.COMMON:
            return StompConsumer(spec, str(first), is_named=is_named)
        temporaries = self._client.temporaries
        remote = temporaries.remote(first)
        own = str(temporaries.own(remote))
        return StompConsumer(replace(spec, addresses=(remote,)), own, is_named=is_named)

    def _required_client_id(self) -> str:
        """The client id that a durable subscription needs."""
        if self._session.client_id is None:
            text = "a durable subscription belongs to a client: send the header client-id with CONNECT"
            raise InvalidHeader(text, header="client-id")
        return self._session.client_id

    def unsubscribe(self, head: Head, receipt: bytes | None) -> bool:
        """An UNSUBSCRIBE frame; one that names a durable subscription removes it. False if it has to wait."""
        headers, session = head.headers, self._session
        id = headers.get("id", headers.get("destination", ""))
        ending = self._by_id.get(id, [])
        of_queue = bool(ending) and ending[0].spec.addresses[0].kind is DestinationKind.QUEUE
        durable = durable_name(headers, of_queue=of_queue and is_of_one(ending[0].spec))
        if not ending and durable is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r}", id=id[:60])
        client_id = None if durable is None else self._required_client_id()
        while ending:
            token = receipt if durable is None and len(ending) == 1 else None
            if not session.unsubscribe(ending[0].consumer, token=token):
                return False
            del self._known[ending.pop(0).consumer]
        self._by_id.pop(id, None)
        return durable is None or session.call("remove-durable", (client_id, durable), receipt)

    def pull(self, head: Head) -> None:
        """A SEND frame to ``/pull/ID``: a consumer with prefetch 0 asks for messages."""
        headers = head.headers
        id = headers["destination"].removeprefix(PULL)
        named = self._by_id.get(id)
        if named is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r} to pull for", id=id[:60])
        asked = whole_number(headers, "quantity", 1, 1, 1_000_000)
        timeout = whole_number(headers, "timeout", 0, -1, MAX_WAIT)
        try:
            self._session.pull(named[0].consumer, asked, timeout)
        except InvalidArgument as error:
            text = f"the subscription {id[:60]!r} is not one that pulls: subscribe with activemq.prefetchSize:0"
            raise InvalidHeader(text, header="destination") from error
        named[0].asked = asked

    # What the session tells.

    def part_added(self, part: Part) -> None:
        """A consumer has a part more."""
        known = self._known.get(part.consumer, self._coming)
        assert known is not None
        part.writer = writer_of(self._client, part, known.start(self._client.version, part))
        if part.partition is not None:
            known.parts[part.partition] = part

    def part_gone(self, part: Part) -> None:
        """A consumer has a part less."""
        known = self._known.get(part.consumer)
        if known is not None and part.partition is not None and known.parts.get(part.partition) is part:
            del known.parts[part.partition]

    def pull_ended(self, consumer: Consumer, left: int) -> bytes:
        """What the client is told of a pull that is over: something only if no message has come."""
        known = self._known.get(consumer)
        return b"" if known is None or left < known.asked else self._marker(known, b"message-id:0\npull:end\n")

    def browse_ended(self, consumer: Consumer, damaged: int) -> bytes:
        """What the client is told of a browser that has shown all."""
        headers = b"message-id:0\nbrowser:end\n" + (b"damaged:%d\n" % damaged if damaged else b"")
        return b"" if (known := self._known.get(consumer)) is None else self._marker(known, headers)

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> bytes:
        """What a member is told of something that has happened to it."""
        known = self._known.get(consumer, self._coming)
        if known is None or known.spec.membership is None or not known.spec.membership.events:
            return b""
        return self._marker(known, header_lines({_EVENT: name, **headers, "message-id": NO_MESSAGE}))

    def _marker(self, known: StompConsumer, headers: bytes) -> bytes:
        return marker(known.start(self._client.version), headers, self._client.version)
