"""Pins: a reader of a stream without a group has its records kept while it is away, for a limited time.

A pin names an offset for each partition it is about: what is there or behind it stays, whatever the policy says. It
ends at its time, unless it is set again before. A batch job that reads ranges (``range_reads``) sets one.

What a commit that fails would have set or released stays as it was. Until its commit is done, both count: what is
pinned now and what was before.
"""

from collections.abc import Collection, Mapping

import msgspec

from quire.broker.core.commit import Commit
from quire.broker.core.core import Core
from quire.broker.streams.partition import Partition
from quire.errors import InvalidArgument, LimitExceeded
from quire.message import Message
from quire.store.marks import walk_marks

MAX_PINS = 1000
"""How many pins a stream may have."""

MAX_NAME = 200
"""How long the name of a pin may be, in bytes of UTF-8."""

MAX_TIME_TO_LIVE = 365 * 86_400_000
"""How long a pin may last without being set again, in milliseconds."""

NOTHING_PINNED = 1 << 62
"""An offset above all others."""


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """One pin: the mark ``stream/LANE/pin/NAME``, with the lane of the stream's first partition.

    Attributes:
        offsets: the first offset that stays, by partition.
        until: when it ends, in milliseconds since the epoch.
    """

    offsets: dict[int, int]
    until: int


class PinsPart:
    """What concerns the pins of one stream in a commit.

    Attributes:
        owner: the pins.
        before: what the names had pinned that are set or released in it; None for nothing.
        appends: none.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = ("appends", "before", "listed", "owner")

    def __init__(self, owner: "Pins") -> None:
        self.owner = owner
        self.before: dict[str, Pin | None] = {}
        self.appends: list[Message] = []
        self.listed = False


class Pins:
    """The pins of one stream.

    Args:
        new: whether it is made now: then nothing is read.

    Attributes:
        by_name: all that have not ended, or not long ago.
    """

    ledger = None

    def __init__(self, core: Core, partitions: list[Partition], *, new: bool = False) -> None:
        self._core = core
        self._partitions = partitions
        self._open = PinsPart(self)
        self._prefix = f"stream/{partitions[0].lane}/pin/"
        self.by_name: dict[str, Pin] = {}
        if not new:
            with self._core.store.snapshot() as reader:
                for key, value in walk_marks(reader, self._prefix):
                    self.by_name[key.removeprefix(self._prefix)] = msgspec.msgpack.decode(value, type=Pin)

    def set(self, name: str, offsets: Mapping[int, int], time_to_live_ms: int) -> Pin:
        """Pin records, in place of what the name had pinned. It counts when the open commit is done.

        Args:
            offsets: the first offset that is to stay, by partition. What is gone already does not come back: a look at
                the partition's extent afterwards tells.
            time_to_live_ms: how long it lasts, in milliseconds.
        """
        if not 0 < len(name.encode()) <= MAX_NAME or "\0" in name:
            raise InvalidArgument(f"a pin's name has 1 to {MAX_NAME} bytes and no NUL character", argument="name")
        if not 0 < time_to_live_ms <= MAX_TIME_TO_LIVE:
            text = f"a pin lasts 1 to {MAX_TIME_TO_LIVE} ms, not {time_to_live_ms}: set it again before it ends"
            raise InvalidArgument(text, argument="time_to_live_ms")
        partitions = len(self._partitions)
        for partition, offset in offsets.items():
            if not (0 <= partition < partitions and offset >= 1):
                text = f"there is no offset {offset} of partition {partition}: partitions are 0 to {partitions - 1}"
                raise InvalidArgument(text, argument="offsets")
        self.expire()
        if name not in self.by_name and len(self.by_name) >= MAX_PINS:
            raise LimitExceeded(f"the stream has {MAX_PINS} pins: release some", limit=MAX_PINS)
        pin = Pin(dict(offsets), self._core.wall.believed_ms() + time_to_live_ms)
        self._change(name, pin)
        return pin

    def release(self, name: str) -> bool:
        """Take a pin away, with the open commit; whether there was one."""
        if name not in self.by_name:
            return False
        self._change(name, None)
        return True

    def _change(self, name: str, pin: Pin | None) -> None:
        self._open.before.setdefault(name, self.by_name.get(name))
        self._core.list_part(self._open)
        self._put(name, pin)

    def _put(self, name: str, pin: Pin | None) -> None:
        """What a name has pinned from now on, with the open commit."""
        if pin is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = pin
        self._core.set_mark(self._prefix + name, None if pin is None else msgspec.msgpack.encode(pin))

    def expire(self) -> None:
        """Take away the pins whose time is up."""
        now = self._core.wall.past_ms()
        for name in [name for name, pin in self.by_name.items() if pin.until <= now]:
            self._put(name, None)

    def clear(self) -> None:
        """Take all away: the stream is deleted."""
        self._core.forget(self)
        self._open = PinsPart(self)
        for name in list(self.by_name):
            self._put(name, None)

    def first(self, partition: int) -> int:
        """The first offset of a partition that is pinned; ``NOTHING_PINNED`` if there is none."""
        now, pins = self._core.wall.past_ms(), list(self.by_name.values())
        for part in (self._open, *self._core.parts_of(self)):
            pins += [pin for pin in part.before.values() if pin is not None]
        pinned = [pin.offsets[partition] for pin in pins if partition in pin.offsets and pin.until > now]
        return min(pinned, default=NOTHING_PINNED)

    # Commits.

    def fill(self, commit: Commit) -> None:
        """Hand over what the open commit stores; the marks are in its batch already."""
        commit.parts[self] = self._open
        self._open = PinsPart(self)

    def committed(self, part: PinsPart) -> None:
        """A commit is done: what was pinned before it is not any more."""

    def commit_failed(self, part: PinsPart, restored: Collection[int]) -> None:
        """A commit failed: what it would have set or released is as it was before."""
        for name, before in part.before.items():
            if name in self._open.before:  # it was changed again meanwhile: if that fails too, this is what it was
                self._open.before[name] = before
            else:
                self._put(name, before)
