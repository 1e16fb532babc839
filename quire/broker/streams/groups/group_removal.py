"""Removes what a consumer group leaves behind: its marks, its retry lane, at last its definition.

It is done in steps, and the definition, which says that it is being removed, goes last: so a crash on the way leaves
nothing behind that the next start would not remove.
"""

from functools import partial

from quire.broker.core.core import Core
from quire.broker.streams.groups.group_definition import GroupDefinition, definition_key, members_key, prefix_of

STEP = 1000
"""How many marks are removed at once."""


class GroupRemoval:
    """One removal. It begins after the open commit, so that it sees all that was written before."""

    def __init__(self, core: Core, number: int, definition: GroupDefinition) -> None:
        self._core = core
        self._number = number
        if definition.retry:
            core.change_destination(definition.retry, None)
        core.after_commit(partial(core.steps.add, self._step, f"the removal of the group {definition.name}"))

    def _step(self) -> bool:
        """Remove the next marks, and at the end what says that there is a group to remove."""
        found = [key for key, _ in self._core.store.marks(prefix_of(self._number), limit=STEP)]
        for key in found or (members_key(self._number), definition_key(self._number)):
            self._core.set_mark(key, None)
        return bool(found)
