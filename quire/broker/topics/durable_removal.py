"""Removes what a durable subscription leaves behind: records that nobody else needs, its marks, at last its definition.

It is done in steps, and the definition, which says that it is being removed, goes last: so a crash on the way leaves
nothing behind that the next start would not remove.
"""

from typing import TYPE_CHECKING

from quire.broker.topics.durable_subscription import definition_key, durable_keys

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.topics.topic import Topic

STEP = 1000
"""How many marks are removed at once."""


class DurableRemoval:
    """One removal. It begins after the open commit.

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
        self._broker.steps.add(self._step, "the removal of a durable subscription")

    def _step(self) -> bool:
        """Remove some of its marks; whether there are more. The mark that says what it is goes with the last ones."""
        store, keys = self._broker.store, durable_keys(self._number)
        found = [key for prefix in (keys.pages, keys.states) for key, _ in store.marks(prefix, limit=STEP)]
        for key in found or (keys.progress, definition_key(self._number)):
            self._broker.set_mark(key, None)
        return bool(found)
