"""What ACK and NACK frames are about, by the ids of their version.

In 1.2 the ``ack`` header of a MESSAGE is the message's sequence; ``-`` and the part's number follow from the second
part of a connection on. In 1.0 and 1.1 messages are acknowledged by message id. The frames that stand for no message
(the end of a browse, a pull in vain) have ``0`` for both; acknowledging them does nothing.

An acknowledgement of a member's message that comes late is never an error: the message may have been taken from the
member a moment ago. Its session counts it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from quire.broker.core.subscription import AckMode
from quire.broker.routing.route import whole_number
from quire.broker.streams.groups.group_partition import RETRIES, RETRY_LANE
from quire.broker.streams.groups.retries import LEVELS_MS, level_ms
from quire.errors import InvalidHeader, UnknownMessage
from quire.message import escape, unescape
from quire.protocols.stomp.frames import Head, Version
from quire.server.stomp.stomp_frames import NO_MESSAGE, MessageIds
from quire.server.stomp.stomp_subscribe import StompConsumers, is_of_member
from quire.sessions.base import (
    ACCEPTED,
    ConsumerKind,
    Handle,
    Handles,
    Part,
    Session,
    Settlement,
    SettlementKind,
    These,
    Tx,
    UpTo,
    What,
)
from quire.units import MAX_DIGITS, parse_number

MAX_DELAY = 365 * 86_400_000
"""The longest delay a client may ask for, in milliseconds."""

MAX_EXTENSION = 7 * 86_400_000
"""By how much a lease may be extended at once, in milliseconds."""

DEAD_LETTER = -1
"""The delay level that makes a dead letter at once (RocketMQ's)."""

_OLD_PREFIX = re.compile(rb"s\d{1,4}~")  # of ids that a cluster has given out before it named messages alike everywhere


class AckId(NamedTuple):
    """The id of an acknowledgement of a member's message, read."""

    handle: Handle
    subscription: str


def read_ack_id(id: bytes) -> AckId | None:
    """Read the id of an acknowledgement, as it stands in frames; None if it is not one of a member's message."""
    if prefix := _OLD_PREFIX.match(id):
        id = id[prefix.end() :]
    head, dash, subscription = id.partition(b"-")
    parts = head.split(b".")
    if len(parts) != 3 or not dash:
        return None
    offset, partition, epoch = parts
    is_retry = partition == RETRY_LANE.encode()
    numbers = (offset, b"0" if is_retry else partition, epoch)
    if not all([text.isdigit() and len(text) < 19 for text in numbers]):
        return None
    handle = Handle(int(offset), int(offset), RETRIES if is_retry else int(partition), int(epoch))
    return AckId(handle, unescape(subscription).decode("utf-8", "replace"))


def read_rejection(headers: Mapping[str, str]) -> Settlement:
    """What a NACK frame asks for.

    Raises:
        InvalidHeader: a value cannot be read.
    """
    if "extend" in headers:
        return Settlement(SettlementKind.EXTEND, whole_number(headers, "extend", 0, 1000, MAX_EXTENSION))
    level = whole_number(headers, "delay-level", 0, DEAD_LETTER, len(LEVELS_MS))
    if level > 0:
        return Settlement(SettlementKind.REJECTED, level_ms(level), "rejected by the consumer")
    delay = whole_number(headers, "redelivery-delay", -1, 0, MAX_DELAY)
    kind = SettlementKind.DEAD if level == DEAD_LETTER else SettlementKind.REJECTED
    return Settlement(kind, None if delay < 0 else delay, "rejected by the consumer")


class StompAcks:
    """The acknowledgements of one client."""

    def __init__(self, session: Session, version: Version, consumers: StompConsumers, message_ids: MessageIds) -> None:
        self._session = session
        self._version = version
        self._consumers = consumers
        self._message_ids = message_ids
        self._indexed: set[int] = set()

    # Runs, in 1.2.

    def acknowledge_run(self, ids: list[bytes]) -> None:
        """A run of ACK frames: nearly all there are. An id that is unknown is an error when the others are done."""
        if b"." in ids[0]:
            ids = self._acknowledge_members(ids)
        parts = self._session.parts
        only = parts.get(0) if len(parts) == 1 else None
        if only is None or not only.writer.takes_runs:
            self._acknowledge_each(ids)
            return
        try:
            sequences = [int(id) for id in ids]
        except ValueError:
            self._acknowledge_each(ids)
            return
        if left := only.acknowledge(sequences):
            self._acknowledge_each([b"%d" % sequence for sequence in left])

    def _acknowledge_each(self, ids: list[bytes]) -> None:
        """Acknowledge some of several parts; the first that is unknown is told when all others are done."""
        unknown: UnknownMessage | None = None
        for id in self._acknowledge_at_once(ids):
            try:
                self._by_ack_id(unescape(id).decode(), ACCEPTED, None, None)
            except UnknownMessage as error:
                unknown = unknown or error
        if unknown is not None:
            raise unknown

    def _acknowledge_at_once(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge the messages of each part at once; the ids that have to be looked at one by one."""
        runs: dict[bytes, tuple[Part | None, list[int]]] = {}
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
        for part, sequences in runs.values():
            if part is not None and sequences:
                end = b"-%d" % part.number if part.number else b""
                others += [b"%d%b" % (sequence, end) for sequence in part.acknowledge(sequences)]
        return others

    def _numbered(self, text: bytes) -> Part | None:
        """The part of a number, if it takes runs."""
        part = self._session.parts.get(int(text)) if text.isdigit() and len(text) < MAX_DIGITS else None
        return part if part is not None and part.writer.takes_runs else None

    def _acknowledge_members(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge what ids of members are about, those of one partition together; the other ids."""
        others: list[bytes] = []
        known: dict[bytes, tuple[Part, list[int]] | None] = {}
        for id in ids:
            offset, _, rest = id.partition(b".")
            if rest not in known:
                known[rest] = self._run_of(id)
            run = known[rest]
            if run is None or not offset.isdigit() or len(offset) > 18:
                others.append(id)
            else:
                run[1].append(int(offset))
        late = [(run[0], offset) for run in known.values() if run is not None for offset in run[0].acknowledge(run[1])]
        for part, sequence in late:  # one by one: each of a message that is named twice counts
            self._session.settle(Handles(part.consumer, [_handle(part, sequence)]), ACCEPTED)
        return others

    def _run_of(self, id: bytes) -> tuple[Part, list[int]] | None:
        """Where a run of acknowledgements begins; None if each one of it has to be looked at."""
        ack_id = read_ack_id(id)
        member = None if ack_id is None else self._consumers.member(ack_id.subscription)
        part = None if ack_id is None or member is None else member.parts.get(ack_id.handle.partition)
        if ack_id is None or part is None or part.epoch != ack_id.handle.epoch:
            return None
        return (part, []) if part.consumer.spec.ack is AckMode.INDIVIDUAL else None

    # Single frames.

    def settle(self, head: Head, how: Settlement, tx: Tx | None, receipt: bytes | None) -> bool:
        """An ACK or NACK frame. False if it has to wait."""
        headers = head.headers
        if self._version is Version.V1_2:
            return self._by_ack_id(headers["id"], how, tx, receipt)
        id, subscription = headers["message-id"], headers.get("subscription")
        if id == NO_MESSAGE:
            return self._nothing(receipt)
        given = self._message_ids.find(id, subscription)
        if given is None:
            self._enter_held()
            given = self._message_ids.find(id, subscription)
        if given is not None:
            return self._one(*given, id, how, tx, receipt)
        if not self._is_stale(subscription):
            raise _unknown_message(id)
        return self._nothing(receipt)

    def _by_ack_id(self, id: str, how: Settlement, tx: Tx | None, receipt: bytes | None) -> bool:
        if id == NO_MESSAGE:
            return self._nothing(receipt)
        if (ack_id := read_ack_id(escape(id.encode()))) is not None:
            member = self._consumers.member(ack_id.subscription)
            if member is None:
                return self._nothing(receipt)
            return self._session.settle(Handles(member.consumer, [ack_id.handle]), how, tx=tx, token=receipt)
        first, _, second = id.partition("-")
        sequence, number = parse_number(first), parse_number(second or "0")
        part = None if number is None else self._session.parts.get(number)
        if sequence is None or part is None or is_of_member(part.consumer.spec):
            raise _unknown_message(id)
        return self._one(part, sequence, id, how, tx, receipt)

    def _one(
        self, part: Part, sequence: int, id: str, how: Settlement, tx: Tx | None, receipt: bytes | None
    ) -> bool:  # fmt: skip
        """One message, or in ``client`` mode all up to it."""
        consumer = part.consumer
        if how is not ACCEPTED and consumer.spec.kind is ConsumerKind.BROWSER:
            text = "a browser's messages cannot be rejected: they are still in their queue"
            raise InvalidHeader(text, header="id")
        what: What = These(part, [sequence])
        if is_of_member(consumer.spec):
            what = Handles(consumer, [_handle(part, sequence)])
        elif consumer.spec.ack is AckMode.CLIENT:
            what = UpTo(part, None, sequence)
        try:
            return self._session.settle(what, how, tx=tx, token=receipt)
        except UnknownMessage as error:
            raise _unknown_message(id) from error

    def _nothing(self, receipt: bytes | None) -> bool:
        if receipt is not None:
            self._session.confirm(receipt)
        return True

    # Members in 1.0 and 1.1.

    def _enter_held(self) -> None:
        """Enter what members had before they came back: nothing of it was delivered on this connection."""
        parts = [part for member in self._consumers.members() for part in member.parts.values()]
        new = [part for part in parts if part.number not in self._indexed]
        self._indexed = {part.number for part in parts}
        for part in new:
            self._message_ids.note(part, list(part.in_flight.values()))

    def _is_stale(self, subscription: str | None) -> bool:
        """Whether a message id that is not known may be one that a member had long ago; if so, that is counted."""
        for member in self._consumers.members():
            if subscription in (None, member.spec.id):
                part = next(iter(member.parts.values()), None)
                if part is not None:  # what it never had, it does not have any more
                    self._session.settle(Handles(member.consumer, [_handle(part, 0)]), ACCEPTED)
                return True
        return False


def _handle(part: Part, sequence: int) -> Handle:
    assert part.partition is not None
    return Handle(sequence, sequence, part.partition, part.epoch)


def _unknown_message(id: str) -> UnknownMessage:
    """The error of an acknowledgement of what is not in flight."""
    return UnknownMessage(f"{id[:60]!r} is not in flight on this connection: acknowledge a message once", id=id[:60])
