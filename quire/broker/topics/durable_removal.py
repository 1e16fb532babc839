"""Removes what a durable subscription leaves behind: records that only it needed, its marks, at last its definition.

It is done in steps, and the definition, which says that it is being removed, goes last: so a crash on the way leaves
nothing behind that the next start would not remove.
"""

from quire.broker.core.core import Core
from quire.broker.topics.durable_progress import definition_key, durable_keys
from quire.broker.topics.durable_subscription import DurableTopic

STEP = 200
"""How many marks one step removes; they are read with their values, pages of ack sets of some kilobytes."""


class DurableRemoval:
    """One removal. It begins after the open commit.

    Args:
        topic: its topic; None if that is gone, with all records.
        first: the first sequence that the subscription may have needed.
    """

    def __init__(self, core: Core, number: int, topic: DurableTopic | None, first: int) -> None:
        self._core = core
        self._number = number
        if topic is None:
            core.after_commit(self._begin)
        else:
            topic.sweep(first, topic.next_sequence - 1, self._begin)

    def _begin(self) -> None:
        self._core.steps.add(self._step, "the removal of a durable subscription")

    def _step(self) -> bool:
        core, keys = self._core, durable_keys(self._number)
        found = [key for prefix in (keys.pages, keys.states) for key, _ in core.store.marks(prefix, limit=STEP)]
        for key in found or (keys.progress, definition_key(self._number)):
            core.set_mark(key, None)
        return bool(found)
