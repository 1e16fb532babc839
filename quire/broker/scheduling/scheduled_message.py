"""A scheduled message, and the record that keeps it until it is due.

The record's expiration is the time it is due. Where the message goes, how, and when again stands in headers of the
record, ``quire-scheduled-...``, which no client sees.
"""

from dataclasses import dataclass
from typing import Self

from quire.broker.scheduling.timing import CRON, DELAY, PERIOD, REPEAT, Timing
from quire.errors import InvalidHeader, StoreCorrupt
from quire.message import Message, header_lines, with_headers

JOB_ID = "scheduledJobId"
"""The header of a message that was sent by the schedule: the id it had there (ActiveMQ's name for it)."""

_PREFIX = "quire-scheduled-"
_DESTINATION = _PREFIX + "destination"
_TIME_TO_LIVE = _PREFIX + "time-to-live"
_PERSISTENT = _PREFIX + "persistent"
_DELAY = _PREFIX + "delay"
_PERIOD = _PREFIX + "period"
_REPEAT = _PREFIX + "repeat"
_CRON = _PREFIX + "cron"
_LEFT = _PREFIX + "left"
_ID = _PREFIX + "id"

SENDER = _PREFIX + "by"
"""The header that says who has scheduled a message; no client writes or sees it."""

_SENDER_LINE, _REPEAT_LINE = f"\n{SENDER}:".encode(), f"\n{_REPEAT}:".encode()

_LEFT_OUT = (_PREFIX.encode(), *[name.encode() + b":" for name in (DELAY, PERIOD, REPEAT, CRON, JOB_ID)])
"""How the header lines begin that are not sent on."""


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """What a record of the schedule says.

    Attributes:
        id: its id in the schedule; the same for all sends of a message that recurs.
        message_id: the message's own id.
        sequence: the record's.
        due: when it is sent next, in milliseconds since the epoch.
        destination: where to, as a destination header says it.
        timing: when it is sent.
        left: how many repeats of its run are left after the next send; -1 for no end.
        time_to_live: how long it lives once it is sent, in milliseconds; None for ever.
        priority: 0 to 9.
        persistent: whether it is persistent once it is sent. In the schedule every message is.
        size: of its record, in bytes.
        sender: who has scheduled it (``Accounts.remembered``); empty if there were no users.
    """

    id: str
    message_id: str
    sequence: int
    due: int
    destination: str
    timing: Timing
    left: int
    time_to_live: int | None
    priority: int
    persistent: bool
    size: int
    sender: str

    @classmethod
    def of(cls, record: Message) -> Self:
        """Read a record."""
        headers = record.headers()
        try:
            delay, period, repeat = [int(headers.get(name, 0)) for name in (_DELAY, _PERIOD, _REPEAT)]
            timing = Timing(delay, period, repeat, headers.get(_CRON, ""))
            time_to_live = headers.get(_TIME_TO_LIVE)
            return cls(
                id=headers.get(_ID, str(record.sequence)),
                message_id=headers["message-id"],
                sequence=record.sequence,
                due=record.expiration,
                destination=headers[_DESTINATION],
                timing=timing,
                left=int(headers.get(_LEFT, timing.repeat)),
                time_to_live=None if time_to_live is None else int(time_to_live),
                priority=record.priority,
                persistent=_PERSISTENT not in headers,
                size=record.size,
                sender=headers.get(SENDER, ""),
            )
        except (KeyError, ValueError, InvalidHeader) as error:
            text = f"record {record.sequence} is not a scheduled message: {error}"
            raise StoreCorrupt(text, sequence=record.sequence) from error


def record_content(
    content: bytes, destination: str, timing: Timing, time_to_live: int | None, persistent: bool
) -> bytes:
    """The content of a message's record.

    Args:
        content: the message's; headers that only the schedule may write, and those that are about it, are left out.
        timing: when.
        time_to_live: how long it lives once it is sent, in milliseconds; None for ever.
        persistent: whether it is persistent then.
    """
    added = {_DESTINATION: destination}
    if sender := Message(0, content).header(SENDER.encode()):
        added[SENDER] = sender
    if time_to_live is not None:
        added[_TIME_TO_LIVE] = str(time_to_live)
    if not persistent:
        added[_PERSISTENT] = "false"
    if timing.recurs:
        added |= {_DELAY: str(timing.delay), _PERIOD: str(timing.period), _REPEAT: str(timing.repeat)}
        if timing.cron:
            added[_CRON] = timing.cron
    head, rest = _split(content)
    return b"".join([*head, header_lines(added), rest])


def endless_sender(content: bytes) -> str:
    """Who has scheduled what a record sends without end; empty if it has an end, or there were no users."""
    end = content.index(b"\n\n")
    if content.find(_SENDER_LINE, 0, end) < 0 or content.find(_REPEAT_LINE, 0, end) < 0:
        return ""
    scheduled = ScheduledMessage.of(Message(0, content))
    return scheduled.sender if scheduled.timing.is_endless else ""


def following_record(record: Message, scheduled: ScheduledMessage, left: int) -> bytes:
    """The content of the record that follows one which was sent and recurs."""
    return with_headers(record.content, {_ID: scheduled.id, _LEFT: str(left)})


def sent_content(record: Message, scheduled: ScheduledMessage, now_ms: int, new_id: bytes) -> tuple[bytes, int]:
    """The message as it is sent.

    As in ActiveMQ, a message that recurs gets a new id each time, and one with a limited life begins it now.
    """
    head, rest = _split(record.content)
    if scheduled.timing.recurs:
        head[0] = new_id + b"\n"
    expiration = 0
    if scheduled.time_to_live is not None:
        expiration = max(1, now_ms + scheduled.time_to_live)
        head[1] = b"timestamp:%d\n" % now_ms
        head = [*[line for line in head if not line.startswith(b"expires:")], b"expires:%d\n" % expiration]
    return b"".join([*head, header_lines({JOB_ID: scheduled.id}), rest]), expiration


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    """The header lines of a content without those about its schedule, and what follows them."""
    end = content.index(b"\n\n")
    lines = content[:end].split(b"\n")
    return [line + b"\n" for line in lines if not line.startswith(_LEFT_OUT)], content[end + 1 :]
