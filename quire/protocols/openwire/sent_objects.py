"""The cache of objects of the sending side."""

from quire.protocols.openwire.received_objects import NOT_CACHED
from quire.protocols.openwire.wire_fields import Structure

# How many slots a frame finds free, as with ActiveMQ.
_FREE = 100


class SentObjects:
    """The slots of what was sent, oldest out first. Null takes a slot like a value."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: dict[Structure | None, int] = {}  # in the order of sending
        self._next = 0
        self._added: list[Structure | None] = []

    def begin_frame(self) -> None:
        """Make space for what the frame adds."""
        self._added.clear()
        while len(self._slots) > max(self._size - _FREE, 0):
            del self._slots[next(iter(self._slots))]

    def undo_frame(self) -> None:
        """Forget what the frame added: it will not be sent."""
        for value in self._added:
            del self._slots[value]
        self._next = (self._next - len(self._added)) % self._size
        self._added.clear()

    def slot_of(self, value: Structure | None) -> int | None:
        """The slot of what was sent before."""
        return self._slots.get(value)

    def add(self, value: Structure | None) -> int:
        """The slot of what is sent for the first time; ``NOT_CACHED`` if all are taken."""
        if len(self._slots) >= self._size:
            return NOT_CACHED
        slot = self._next
        self._next = (slot + 1) % self._size
        self._slots[value] = slot
        self._added.append(value)
        return slot
