"""Removes what a consumer group leaves behind: its marks, its retry lane, at last its definition.

It is done in steps, and the definition, which says that it is being removed, goes last: so a crash on the way leaves
nothing behind that the next start would not remove.
"""

from functools import partial
from typing import TYPE_CHECKING

from quire.broker.streams.groups.group_definition import GroupDefinition, definition_key, members_key, prefix_of

if TYPE_CHECKING:
    from quire.broker.broker import Broker

STEP = 1000
"""How many marks are removed at once."""


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
        broker.after_commit(partial(broker.steps.add, self._step, f"the removal of the group {definition.name}"))

    def _step(self) -> bool:
        """Remove the next marks, and at the end what says that there is a group to remove."""
        found = [key for key, _ in self._broker.store.marks(prefix_of(self._number), limit=STEP)]
        for key in found or (members_key(self._number), definition_key(self._number)):
            self._broker.set_mark(key, None)
        return bool(found)
