"""Removes what a durable subscription leaves behind: records that nobody else needs, its marks, at last its definition.

It is done in steps, and the definition, which says that it is being removed, goes last: so a crash on the way leaves
nothing behind that the next start would not remove.
"""

import logging
from typing import TYPE_CHECKING

from quire.broker.topics.durable_subscription import definition_key, durable_keys
from quire.errors import StoreError
from quire.logs import event

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.topics.topic import Topic

STEP = 1000
"""How many marks are removed at once."""

RETRY = 1.0
"""After how many seconds marks are read again that could not be."""


class DurableRemoval:
    """One removal.

    Args:
        broker: the broker.
        number: the subscription's.
        topic: its topic; None if that is gone, with all records.
        first: the first sequence that the subscription may have needed.
    """

    def __init__(self, broker: "Broker", number: int, topic: "Topic | None", first: int) -> None:
        self._broker = broker
        self._number = number
        if topic is None:
            broker.after_commit(self._clear_marks)
        else:
            topic.sweep(first, topic.next_sequence - 1, self._clear_marks)

    def _clear_marks(self) -> None:
        broker, keys = self._broker, durable_keys(self._number)
        try:
            found = [key for prefix in (keys.pages, keys.states) for key, _ in broker.store.marks(prefix, limit=STEP)]
        except StoreError as error:
            event("store.unreadable", f"a removal waits: {error}", logging.WARNING, code=error.code)
            broker.scheduler.call_later(RETRY, self._clear_marks)
            return
        for key in found or (keys.progress, definition_key(self._number)):
            broker.set_mark(key, None)
        if found:
            broker.after_commit(self._clear_marks)
