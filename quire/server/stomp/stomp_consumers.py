"""The consumers of a STOMP connection: what SUBSCRIBE asks for, and the MESSAGE frames of each part.

The client calls a temporary destination by a name of its own, ``/temp-queue/replies``. Others send to it by the name
that the broker gave it, ``/remote-temp-queue/...``, which they find in the ``reply-to`` header of what the client sent.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, cast

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.routing.route import whole_number
from quire.broker.routing.temporary import REPLY_TO
from quire.broker.streams.groups.group import NOTHING, RETRIES, RETRY_LANE, read_held
from quire.broker.streams.groups.group_definition import Mode, Order
from quire.broker.streams.partition import Start
from quire.destination import DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination, InvalidHeader, LimitExceeded, UnknownSubscription
from quire.logs import event
from quire.message import Message, escape, header_lines
from quire.protocols.stomp.frames import Head, Version, content_for
from quire.selectors import selector
from quire.sessions.base import Consumer, ConsumerKind, MemberPart, Membership, Part, Session, SubscribeSpec
from quire.sessions.consumers import refuse_temporary
from quire.units import parse_duration

NO_MESSAGE = "0"
"""What stands for both ids in a frame that is no message: no sequence and no message id is ever so."""

_FIRST_OF_GROUP = b"JMSXGroupFirstForConsumer:true\n"
_USUAL_STAMPS = b"expires:0\npriority:4\n"  # of a message that never expires and has the usual priority
_REPLY_TO_LINE = re.compile(rb"\nreply-to:(/remote-temp-(?:queue|topic)/[^\n]*)")


class OwnTemporaries:
    """Translates between the client's names and the broker's. The first use of a name makes the destination.

    ``lines`` has what the ``reply-to`` header of a message is here, by its value in the broker.
    """

    def __init__(self, make: Callable[[DestinationKind], Address]) -> None:
        self._make = make
        self._remote: dict[Address, Address] = {}
        self.lines: dict[bytes, bytes] = {}

    def remote(self, address: Address) -> Address:
        if address.scope is not Scope.OWN:
            return address
        known = self._remote.get(address)
        if known is None:
            if not address.name:
                raise InvalidDestination(f"{str(address)!r} has no name: write {address}NAME", destination=str(address))
            known = self._remote[address] = self._make(address.kind)
            self.lines[str(known).encode()] = b"\n" + header_lines({REPLY_TO: str(address)})[:-1]
        return known

    def own(self, address: Address) -> Address:
        """The client's name for a temporary destination that it has."""
        own = next((own for own, remote in self._remote.items() if address in (own, remote)), None)
        if own is None:
            text = f"{str(address)[:100]!r} belongs to another connection: only that one may consume it"
            raise InvalidDestination(text, destination=str(address)[:100])
        return own

    def remote_text(self, text: str) -> str:
        """A destination header with the broker's names in it, as any connection can use it."""
        if "/temp-" not in text:
            return text
        addresses, _ = read_destination(text)
        return ",".join([str(self.remote(address)) for address in addresses])

    def remote_reply_to(self, text: str) -> str:
        """A ``reply-to`` header with the broker's name in it; one that names another destination stays as it is."""
        return self.remote_text(text) if text.startswith(("/temp-queue/", "/temp-topic/")) else text

    def localized(self, pieces: list[bytes]) -> list[bytes]:
        """Pieces of frames in which ``reply-to`` has the client's own name again."""
        return [self._localized(piece) for piece in pieces]

    def _localized(self, content: bytes) -> bytes:
        end = content.find(b"\n\n")
        if content.find(b"\nreply-to:/remote-temp-", 0, end) < 0:
            return content
        return _REPLY_TO_LINE.sub(self._own_line, content, 1)

    def _own_line(self, found: re.Match[bytes]) -> bytes:
        return self.lines.get(found[1], found[0])


class MessageIds:
    """Who was given a message, by its id: what 1.0 and 1.1 acknowledge by.

    It has some that are settled too: when they may be more than those in flight, they are looked for and forgotten.
    """

    def __init__(self, parts: Mapping[int, Part]) -> None:
        self._parts = parts
        self._given: dict[str, dict[tuple[Part, int], None]] = {}

    def __len__(self) -> int:
        return len(self._given)

    def find(self, id: str, wanted: str | None) -> tuple[Part, int] | None:
        """The part that was given a message of an id, and its sequence, rather one in flight; None if there is none."""
        found = [given for given in self._given.get(id, ()) if wanted in (None, given[0].consumer.spec.id)]
        there = [given for given in found if given[1] in given[0].in_flight]
        return there[0] if there else found[-1] if found else None

    def note(self, part: Part, messages: list[Message]) -> None:
        """Messages are given to a consumer, or it has them from before."""
        if len(self._given) > MAX_SETTLED_IDS:
            in_flight = sum([len(known.in_flight) for known in self._parts.values()])
            if len(self._given) > MAX_SETTLED_IDS + 2 * in_flight:
                self._forget_settled()
        for message in messages:
            self._given.setdefault(message.id, {})[part, message.sequence] = None

    def _forget_settled(self) -> None:
        kept = {}
        for id, entries in self._given.items():
            if left := {given: None for given in entries if given[1] in given[0].in_flight}:
                kept[id] = left
        self._given = kept


MAX_SETTLED_IDS = 1000
"""Of so many messages that were settled the ids may be kept."""


class Client(Protocol):
    @property
    def version(self) -> Version: ...

    @property
    def temporaries(self) -> OwnTemporaries: ...

    @property
    def message_ids(self) -> MessageIds: ...


class Writer:
    """Writes the MESSAGE frames of one part of a consumer, in 1.2.

    Attributes:
        takes_runs: whether acknowledgements name its messages by their sequence, and each is about one message.
    """

    __slots__ = ("_client", "_end_of_id", "_prefix", "takes_runs")

    def __init__(self, client: Client, part: Part, start: bytes) -> None:
        self._client = client
        self._prefix = start + b"ack:"
        self._end_of_id = b"-%d\n" % part.number if part.number else b"\n"
        self.takes_runs = part.consumer.spec.ack is AckMode.INDIVIDUAL

    def frames(self, messages: list[Message], first: bool) -> list[bytes]:
        """Frames in pieces to be joined; ``first`` if the messages are the first of their group for the consumer."""
        end_of_id, extra = self._end_of_id, _FIRST_OF_GROUP if first else b""
        between = b"\0" + self._prefix
        usual = end_of_id + _USUAL_STAMPS + extra
        pieces = [self._prefix]
        append = pieces.append
        for message in messages:
            if message.priority == 4 and not message.expiration:
                append(b"%d" % message.sequence + usual)
            else:
                append(b"%d" % message.sequence + end_of_id + _stamps(message) + extra)
            if message.redelivered:
                append(_redelivery(message))
            append(message.content)
            append(between)
        pieces[-1] = b"\0"
        own = self._client.temporaries
        return own.localized(pieces) if own.lines else pieces


class OldWriter(Writer):
    """In 1.0 and 1.1, where messages are named by their ids."""

    __slots__ = ("_is_noted", "_part", "_start")

    def __init__(self, client: Client, part: Part, start: bytes) -> None:
        super().__init__(client, part, start)
        self._part = part
        self._start = start
        self._is_noted = part.consumer.spec.ack is not AckMode.AUTO

    def frames(self, messages: list[Message], first: bool) -> list[bytes]:
        if self._is_noted:
            self._client.message_ids.note(self._part, messages)
        own, version, pieces = self._client.temporaries, self._client.version, list[bytes]()
        for message in messages:
            contents = own.localized([message.content]) if own.lines else [message.content]
            pieces += _frame(self._start, message, contents[0], first=first, version=version)
        return pieces


class MemberWriter:
    """Writes the MESSAGE frames of what a member of a group, or a reader, has of a partition, or of the retries.

    In 1.2 the id in ``ack`` is ``OFFSET.PARTITION.EPOCH-SUBSCRIPTION``, ``r`` for the partition of a retry. It means
    the same on the next connection of the member, so that what it held can be acknowledged there.
    """

    takes_runs = False

    __slots__ = ("_client", "_end_of_id", "_part", "_start")

    def __init__(self, client: Client, part: MemberPart, start: bytes) -> None:
        self._client = client
        self._part = part
        self._start = start
        self._note_epoch()

    def _note_epoch(self) -> None:
        lane = RETRY_LANE if self._part.partition == RETRIES else self._part.partition
        self._end_of_id = f".{lane}.{self._part.epoch}-".encode() + escape(self._part.consumer.spec.id.encode())

    def frames(self, messages: list[Message], first: bool) -> list[bytes]:
        if self._part.partition == RETRIES or self._client.version is not Version.V1_2:
            self._note_epoch()  # that of retries changes when the group is moved
            pieces = self._other_frames(messages, first)
        else:
            pieces = self._usual_frames(messages, first)
        own = self._client.temporaries
        return own.localized(pieces) if own.lines else pieces

    def _usual_frames(self, messages: list[Message], first: bool) -> list[bytes]:
        start = self._start + f"partition:{self._part.partition}\n".encode()
        head = _literally(start) + b"offset:%d\nack:%d" + _literally(self._end_of_id) + b"\n%s"
        head += _FIRST_OF_GROUP if first else b""
        pieces: list[bytes] = []
        append = pieces.append
        for message in messages:
            sequence = message.sequence
            append(head % (sequence, sequence, _stamps(message)))
            if message.redelivered:
                append(_redelivery(message))
            append(message.content)
            append(b"\0")
        return pieces

    def _other_frames(self, messages: list[Message], first: bool) -> list[bytes]:
        """The frames of retries, which say where their origin is, and those of older versions."""
        part, version, pieces = self._part, self._client.version, []
        if version is not Version.V1_2 and part.consumer.spec.ack is not AckMode.AUTO:
            self._client.message_ids.note(part, messages)
        for message in messages:
            start = self._start + b"partition:%d\noffset:%d\n" % part.origin(message)
            if version is Version.V1_2:
                start += b"ack:%d%b\n" % (message.sequence, self._end_of_id)
            pieces += _frame(start, message, message.content, first=first, version=version)
        return pieces


def writer_of(client: Client, part: Part, start: bytes) -> Writer | MemberWriter:
    """What writes the frames of a part, which all begin alike."""
    if part.consumer.spec.kind in (ConsumerKind.MEMBER, ConsumerKind.READER):
        return MemberWriter(client, cast(MemberPart, part), start)
    return (Writer if client.version is Version.V1_2 else OldWriter)(client, part, start)


def frame_start(spec: SubscribeSpec, destination: str, version: Version, *, is_named: bool) -> bytes:
    """What all MESSAGE frames of a subscription begin with; its id is not in them if the client gave none (1.0)."""
    headers = {"subscription": spec.id, "destination": destination} if is_named else {"destination": destination}
    return content_for(b"MESSAGE\n" + header_lines(headers) + b"\n\n", version)[:-2]


def marker(start: bytes, headers: bytes, version: Version) -> bytes:
    """A MESSAGE frame that stands for no message."""
    ack = b"ack:0\n" if version is Version.V1_2 else b""
    return start + content_for(ack + headers + b"\n", version) + b"\0"


def _frame(start: bytes, message: Message, content: bytes, *, first: bool, version: Version) -> list[bytes]:
    extra, flag = _FIRST_OF_GROUP if first else b"", _redelivery(message) if message.redelivered else b""
    return [start, _stamps(message), extra, flag, content_for(content, version), b"\0"]


def _stamps(message: Message) -> bytes:
    """The headers of a message that its record has: when it expires, and its priority."""
    if message.priority == 4 and not message.expiration:
        return _USUAL_STAMPS
    return b"expires:%d\npriority:%d\n" % (message.expiration, message.priority)


def _redelivery(message: Message) -> bytes:
    """The headers of a message that may have been delivered before (JMS 2.0, 3.5.11: the count is then at least 2)."""
    return b"redelivered:true\nJMSXDeliveryCount:%d\n" % (max(message.deliveries, 1) + 1)


def _literally(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


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
    """Understand a SUBSCRIBE frame, and whether it has an id. A header stands over an option of the destination."""
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
    return spec.membership is not None


def read_membership(headers: Mapping[str, str]) -> Membership:
    """Understand what a SUBSCRIBE frame to a stream says of the group, the member, where to start."""
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
    """What a SUBSCRIBE frame has made; it has asked for so many messages last."""

    consumer: Consumer

    def __init__(self, spec: SubscribeSpec, shown: str | None, *, is_named: bool) -> None:
        self.spec = spec
        self.parts: dict[int, Part] = {}
        self.asked = 0
        self._shown = shown  # its destination, as the client has it; None if each part says its own
        self._is_named = is_named

    def start(self, version: Version, part: Part | None = None) -> bytes:
        shown = self._shown
        if shown is None and part is not None:
            shown = str(Address(part.destination.kind, part.destination.name))
        return frame_start(self.spec, shown or str(self.spec.addresses[0]), version, is_named=self._is_named)


class StompConsumers:
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
        return (named[0] for named in self._by_id.values() if is_of_member(named[0].spec))

    def subscribe(self, head: Head, receipt: bytes | None) -> None:
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
            refuse_temporary(spec)
            return StompConsumer(spec, None, is_named=is_named)
        if first.scope is Scope.COMMON:
            return StompConsumer(spec, str(first), is_named=is_named)
        temporaries = self._client.temporaries
        remote = temporaries.remote(first)
        own = str(temporaries.own(remote))
        return StompConsumer(replace(spec, addresses=(remote,)), own, is_named=is_named)

    def _required_client_id(self) -> str:
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
        known = self._known.get(part.consumer, self._coming)
        assert known is not None
        part.writer = writer_of(self._client, part, known.start(self._client.version, part))
        if part.partition is not None:
            known.parts[part.partition] = part

    def part_gone(self, part: Part) -> None:
        known = self._known.get(part.consumer)
        if known is not None and part.partition is not None and known.parts.get(part.partition) is part:
            del known.parts[part.partition]

    def pull_ended(self, consumer: Consumer, left: int) -> bytes:
        """What the client is told of a pull that is over: something only if no message has come."""
        known = self._known.get(consumer)
        return b"" if known is None or left < known.asked else self._marker(known, b"message-id:0\npull:end\n")

    def browse_ended(self, consumer: Consumer, damaged: int) -> bytes:
        headers = b"message-id:0\nbrowser:end\n" + (b"damaged:%d\n" % damaged if damaged else b"")
        return b"" if (known := self._known.get(consumer)) is None else self._marker(known, headers)

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> bytes:
        known = self._known.get(consumer, self._coming)
        if known is None or known.spec.membership is None or not known.spec.membership.events:
            return b""
        return self._marker(known, header_lines({_EVENT: name, **headers, "message-id": NO_MESSAGE}))

    def _marker(self, known: StompConsumer, headers: bytes) -> bytes:
        return marker(known.start(self._client.version), headers, self._client.version)
