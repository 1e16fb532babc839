"""Removes lanes that are not reachable any more: records and spooled messages, a step after the other."""

from collections.abc import Callable, Sequence

from quire.broker.core.core import Core

STEP = 1000
"""How many records one step removes."""

STEP_BYTES = 16 << 20
"""How many bytes of records one step removes, if it is about more than one; none of them is read."""


class LaneRemoval:
    """One removal. It begins after the open commit, so that it sees all that was sent before.

    Args:
        done: called when nothing is left.
    """

    def __init__(self, core: Core, lanes: Sequence[int], name: str, done: Callable[[], None]) -> None:
        self._core = core
        self._lanes = list(lanes)
        self._done = done
        core.after_commit(lambda: core.steps.add(self._step, name))

    def _step(self) -> bool:
        """Remove the first records of the first lane that has any; they are looked at again if the commit fails."""
        store, spool = self._core.store, self._core.spool
        while self._lanes:
            lane, size = self._lanes[0], 0
            going: list[int] = []
            for link in store.links(lane, 0, STEP):
                size += link.size
                if going and size > STEP_BYTES:
                    break
                going.append(link.sequence)
            spooled = [link.sequence for link in spool.links(lane, 0, STEP)]
            if spooled:
                spool.remove(lane, spooled)
            if going:
                self._core.remove_records(lane, going)
            if going or spooled:
                return True
            del self._lanes[0]
        self._done()
        return False
