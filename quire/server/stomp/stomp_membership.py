"""What the headers of a SUBSCRIBE frame to a stream mean: the group, the member, where to start."""

from collections.abc import Mapping
from dataclasses import dataclass

from quire.broker.streams.groups.group_definition import Mode, Order
from quire.broker.streams.groups.group_partition import NOTHING, Held, read_held
from quire.broker.streams.partition import Start
from quire.errors import InvalidArgument, InvalidHeader
from quire.units import parse_duration

MAX_NAME = 200
"""The longest name of a member, in characters."""

MAX_TIMEOUT = 7 * 86_400.0
"""The longest consume timeout a client may ask for, in seconds."""


@dataclass(frozen=True, slots=True)
class MembershipRequest:
    """What a client wants of a stream.

    Attributes:
        group: the group's name; None for a reader, which stores nothing.
        member: the member's name; None if it has none, and is not awaited when its connection is lost.
        start: where a new group begins; None if nothing is said.
        mode: who gets a message.
        order: what order the group relies on; None for what the group has.
        consume_timeout: how long it may have a message, in seconds; None for what the policy says.
        room: where it runs.
        partitions: those it names.
        held: what it still has of an earlier connection.
        events: whether it wants to be told what happens to it.
    """

    group: str | None
    member: str | None
    start: Start | None
    mode: Mode
    order: Order | None
    consume_timeout: float | None
    room: str
    partitions: tuple[int, ...]
    held: Held
    events: bool


def read_membership(headers: Mapping[str, str]) -> MembershipRequest:
    """Understand the headers.

    Raises:
        InvalidHeader: a value cannot be read.
    """
    events = headers.get("events", "false").strip().lower()
    if events not in ("true", "false"):
        raise InvalidHeader(f"events is {events[:60]!r}: write true or false", header="events")
    return MembershipRequest(
        group=_name(headers, "group"),
        member=_member(headers),
        start=_start(headers),
        mode=Mode(_word(headers, "mode", list(Mode)) or Mode.CLUSTERING),
        order=Order(order) if (order := _word(headers, "order", list(Order))) else None,
        consume_timeout=_timeout(headers),
        room=headers.get("room", ""),
        partitions=_partitions(headers),
        held=read_held(headers["held"]) if "held" in headers else NOTHING,
        events=events == "true",
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
