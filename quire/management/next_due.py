"""When the next scheduled message is due, told from the store's index of expirations."""

from typing import TYPE_CHECKING

from quire.broker.schedule import KIND
from quire.errors import StoreError

if TYPE_CHECKING:
    from quire.broker.broker import Broker

MOST = 1000
"""How many entries of the index are looked at: the messages of all destinations that expire are in it."""

_EVER = 1 << 62


class NextDue:
    """Looks up when the next scheduled message is due."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._lane = 0

    def read(self) -> int | None:
        """When it is due, in ms since the epoch; None if it is not among the first ``MOST``, or unreadable."""
        schedule = self._broker.schedule
        if schedule.depth == 0 or schedule.soon.earliest is not None:
            return schedule.soon.earliest
        try:
            return self._from_store()
        except StoreError:  # the part that has to read it tells of it
            return None

    def _from_store(self) -> int | None:
        if not self._lane:
            known = self._broker.core.store.destinations()
            self._lane = next((stored.lanes[0] for stored in known if stored.kind == KIND), 0)
        found = self._broker.core.store.expired(_EVER, MOST)
        sequence = next((entry.sequence for entry in found if entry.lane == self._lane), None)
        if sequence is None:
            return None
        return next((message.due for message in self._broker.schedule.browse(sequence - 1, 1).messages), None)
