"""What is written of messages: the MESSAGE frames of each part of a consumer, and names of temporary destinations.

The client calls a temporary destination by a name of its own, ``/temp-queue/replies``. Others send to it by the name
that the broker gave it, ``/remote-temp-queue/...``, which they find in the ``reply-to`` header of what the client sent.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.routing.temporary import REPLY_TO
from quire.broker.streams.groups.group_partition import RETRIES, RETRY_LANE
from quire.destination import DestinationKind
from quire.errors import InvalidDestination
from quire.message import Message, escape, header_lines
from quire.protocols.stomp.frames import Version, content_for
from quire.sessions.base import ConsumerKind, MemberPart, Part, SubscribeSpec

NO_MESSAGE = "0"
"""What stands for both ids in a frame that is no message: no sequence and no message id is ever so."""

_FIRST_OF_GROUP = b"JMSXGroupFirstForConsumer:true\n"
_USUAL_STAMPS = b"expires:0\npriority:4\n"  # of a message that never expires and has the usual priority
_REPLY_TO_LINE = re.compile(rb"\nreply-to:(/remote-temp-(?:queue|topic)/[^\n]*)")


class OwnTemporaries:
    """Translates between the client's names and the broker's. The first use of a name makes the destination.

    Args:
        make: makes a destination; it goes with the session.

    Attributes:
        lines: what the ``reply-to`` header of a message is here, by its value in the broker; empty without any.
    """

    def __init__(self, make: Callable[[DestinationKind], Address]) -> None:
        self._make = make
        self._remote: dict[Address, Address] = {}
        self.lines: dict[bytes, bytes] = {}

    def remote(self, address: Address) -> Address:
        """The broker's address of a temporary destination."""
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
        """The client's name for a temporary destination that it has.

        Raises:
            InvalidDestination: it is another connection's.
        """
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
        """The part that was given a message of an id, and its sequence, rather one in flight; None if there is none.

        Args:
            wanted: the subscription that the frame names; None if it names none.
        """
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
    """What writers of frames ask of the connection."""

    @property
    def version(self) -> Version:
        """What it speaks."""

    @property
    def temporaries(self) -> OwnTemporaries:
        """Its temporary destinations."""

    @property
    def message_ids(self) -> MessageIds:
        """Who was given a message."""


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
        """Frames in pieces to be joined."""
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
        lane = RETRY_LANE if part.partition == RETRIES else part.partition
        self._end_of_id = f".{lane}.{part.epoch}-".encode() + escape(part.consumer.spec.id.encode())

    def frames(self, messages: list[Message], first: bool) -> list[bytes]:
        """Frames in pieces to be joined."""
        if self._part.partition == RETRIES or self._client.version is not Version.V1_2:
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
    """A text as it stands in a format."""
    return text.replace(b"%", b"%%")
