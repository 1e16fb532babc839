"""What a consumer group is, as the store has it: the mark ``group/h/NUMBER``."""

from enum import StrEnum

import msgspec

from quire.broker.queues.shared_lane import LaneKeys
from quire.destination import is_plain
from quire.errors import InvalidHeader
from quire.message import Message, with_headers

DEFINITIONS = "group/h/"
"""What the keys of the marks begin with that say which groups there are."""

MAX_NAME = 200
"""The longest name of a group, in bytes of UTF-8."""


class Mode(StrEnum):
    """Who gets a message (RocketMQ's MessageModel)."""

    CLUSTERING = "clustering"
    """One member of the group."""
    BROADCASTING = "broadcasting"
    """Each member."""


class Order(StrEnum):
    """What order a group relies on."""

    CONCURRENT = "concurrent"
    """None: a message that fails is tried again later, and the others go on."""
    ORDERLY = "orderly"
    """That of the partition: one message of it is out at a time, and one that fails holds back all others."""
    KEY_ORDERED = "key-ordered"
    """That of a key: one message of each key is out at a time, and one that fails holds back those of its key."""


class GroupDefinition(msgspec.Struct, array_like=True, frozen=True):
    """What a group is.

    Attributes:
        start: where it began, as it was asked for.
        created: when, in milliseconds since the epoch.
        retry: the number of the destination that its retries are in; 0 if they wait at their place.
        is_removed: whether it is being removed.
    """

    stream: str
    name: str
    mode: Mode = Mode.CLUSTERING
    order: Order = Order.CONCURRENT
    selector: str | None = None
    start: str = "latest"
    created: int = 0
    retry: int = 0
    is_removed: bool = False


def check_name(name: str) -> None:
    if not is_plain(name) or len(name.encode()) > MAX_NAME:
        raise InvalidHeader(f"{name[:60]!r} is no name for a group: 1 to {MAX_NAME} bytes, plain", header="group")


def definition_key(number: int) -> str:
    return f"{DEFINITIONS}{number}"


def members_key(number: int) -> str:
    return f"group/m/{number}"


def prefix_of(number: int) -> str:
    return f"group/{number}/"


def partition_keys(number: int, partition: int) -> LaneKeys:
    prefix = f"{prefix_of(number)}{partition}/"
    return LaneKeys(progress=f"{prefix}p", pages=f"{prefix}a/", states=f"{prefix}d/")


def dead_letter_of(group: str, partition: int, offset: int, message: Message) -> Message:
    added = {"group": group, "partition": str(partition), "offset": str(offset)}
    return Message(message.sequence, with_headers(message.content, added), 0, message.priority)
