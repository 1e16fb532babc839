"""Keeps Python's collector of cycles from stopping the event loop: it looks at all objects there are at once.

With ten thousand destinations that takes a quarter of a second, again and again. So what has survived a full collection
is set aside (``gc.freeze``), and the next one looks at what came since. What was set aside and has become garbage in
cycles stays until all objects are looked at again: once a minute while that is short, else when much has ended.
"""

import gc
from collections.abc import Callable

from quire.scheduler import Scheduler

PERIOD = 60.0
"""How often it is seen whether all objects are to be looked at, in seconds."""

FEW = 30_000
"""So many objects are looked at within some milliseconds."""

OBJECTS = 50
"""How many objects a connection or a destination is made of, at the least."""

THRESHOLDS = (2000, 5, 2)
"""After so many new objects the youngest are looked at; after so many of these collections, those that survived
one; and after so many of those, all that is not set aside: some 20,000 objects, or ten milliseconds and more."""


class GarbageCollection:
    """The collector's settings while a broker runs."""

    def __init__(self, scheduler: Scheduler, ended: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._ended = ended
        self._ended_before = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """What is there at the start is set aside, and so is from now on what survives.

        What was set aside before the process was forked is not looked at: clients may wait for this start.
        """
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._ended_before = self._ended()
        gc.collect()
        self._scheduler.call_later(PERIOD, self._look)

    def stop(self) -> None:
        """All is as it was before."""
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def collect_all(self) -> None:
        """Look at all objects."""
        self._ended_before = self._ended()
        gc.unfreeze()
        gc.collect()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()

    def _look(self) -> None:
        self._scheduler.call_later(PERIOD, self._look)
        objects, ended = gc.get_freeze_count(), self._ended() - self._ended_before
        if objects < FEW or ended * OBJECTS > objects:
            self.collect_all()
