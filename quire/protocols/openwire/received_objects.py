"""The cache of objects of the receiving side."""

from quire.errors import LimitExceeded, ProtocolViolation
from quire.protocols.openwire.wire_fields import Structure

NOT_CACHED = -1
_MAX_OCTETS = 8 * 1024 * 1024


class ReceivedObjects:
    """Objects in the slots that the sender picks. Null takes a slot like a value."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: dict[int, tuple[Structure | None, int]] = {}
        self._octets = 0
        self._replaced: list[tuple[int, tuple[Structure | None, int] | None]] = []  # by the frame under way

    def begin_frame(self) -> None:
        """The next frame begins."""
        self._replaced.clear()

    def undo_frame(self) -> None:
        """Forget what the frame put: it was not whole, and will be read again."""
        for slot, before in reversed(self._replaced):
            self._octets -= self._slots.pop(slot)[1]
            if before is not None:
                self._slots[slot] = before
                self._octets += before[1]
        self._replaced.clear()

    def put(self, slot: int, value: Structure | None, octets: int) -> None:
        """Put a value that took so many octets into a slot.

        Raises:
            ProtocolViolation: there is no such slot.
            LimitExceeded: the values of all slots take too many octets.
        """
        if slot == NOT_CACHED:
            return
        if not 0 <= slot < self._size:
            raise ProtocolViolation(f"the cache has {self._size} slots, none is {slot}", slot=slot)
        before = self._slots.get(slot)
        self._octets += octets - (before[1] if before else 0)
        if self._octets > _MAX_OCTETS:
            raise LimitExceeded(f"the cached objects take more than {_MAX_OCTETS} octets", max_octets=_MAX_OCTETS)
        self._replaced.append((slot, before))
        self._slots[slot] = value, octets

    def get(self, slot: int) -> Structure | None:
        """The value of a slot.

        Raises:
            ProtocolViolation: nothing was put there.
        """
        found = self._slots.get(slot)
        if found is None:
            raise ProtocolViolation(f"slot {slot} of the cache is empty", slot=slot)
        return found[0]
