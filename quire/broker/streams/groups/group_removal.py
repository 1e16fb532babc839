"""Removes what a consumer group leaves behind: its marks, its retry lane, at last its definition.

It is done in steps, and the definition, which says that it is being removed, goes last: so a crash on the way leaves
nothing behind that the next start would not remove.
"""

import logging
from typing import TYPE_CHECKING

from quire.broker.streams.groups.group_definition import GroupDefinition, definition_key, members_key, prefix_of
from quire.errors import StoreError
from quire.logs import event

if TYPE_CHECKING:
    from quire.broker.broker import Broker

STEP = 1000
"""How many marks are removed at once."""

RETRY = 1.0
"""After how many seconds marks are read again that could not be."""


class GroupRemoval:
    """One removal. It begins after the open commit, so that it sees all that was written before.

    Args:
        broker: the broker.
        number: the group's.
        definition: what it was.
    """

    def __init__(self, broker: "Broker", number: int, definition: GroupDefinition) -> None:
        self._broker = broker
        self._number = number
        if definition.retry:
            broker.change_destination(definition.retry, None)
        broker.after_commit(self._clear_marks)

    def _clear_marks(self) -> None:
        broker = self._broker
        try:
            found = [key for key, _ in broker.store.marks(prefix_of(self._number), limit=STEP)]
        except StoreError as error:
            event("store.unreadable", f"a removal waits: {error}", logging.WARNING, code=error.code)
            broker.scheduler.call_later(RETRY, self._clear_marks)
            return
        for key in found or (members_key(self._number), definition_key(self._number)):
            broker.set_mark(key, None)
        if found:
            broker.after_commit(self._clear_marks)
