"""Looks at the disks of store and spool: producers are held before one is full, and its reserve is used when it is."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from quire.broker.core.core import Core
from quire.broker.core.flow import HoldCause
from quire.logs import event
from quire.store.disk import Disk

INTERVAL = 0.25
"""How often a disk is looked at, in seconds."""

_WRITTEN_SHARE = 8  # of the limit: a fast producer fills a small disk between two looks


class DiskWatch:
    """The disks that a broker watches; none until ``watch``.

    Attributes:
        disks: by the cause for which producers are held when they are low.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._failing: set[HoldCause] = set()
        self.disks: Mapping[HoldCause, Disk] = {}
        self._share = math.inf
        self._unwatched = 0  # bytes that were stored since a commit had the disks looked at

    def watch(self, disks: Mapping[HoldCause, Disk]) -> None:
        """Look at disks from now on."""
        self.disks = disks
        self._share = min([disk.limit for disk in disks.values()], default=math.inf) / _WRITTEN_SHARE
        self._look_now_and_again()

    def written(self, size: int) -> None:
        """A commit has stored so many bytes: the disks are looked at before the time if that adds up."""
        self._unwatched += size
        if self._unwatched > self._share:
            self._look()

    def _look(self) -> None:
        self._unwatched = 0
        for cause in self.disks:
            self._look_at(cause, refills=self._core.store_error is None)

    def release(self) -> bool:
        """A commit found no space: give reserves back, so that the next one can remove what is acknowledged.

        Returns:
            Whether there was something to give.
        """
        has_more = False
        for cause, disk in self.disks.items():
            try:
                if released := disk.release():
                    has_more = True
                    text = f"{disk.directory}: {released} bytes of the reserve are released for deliveries and removals"
                    event("disk.reserve-used", text, logging.WARNING, directory=str(disk.directory), bytes=released)
            except OSError as error:
                self._failed(cause, error)
            self._look_at(cause, refills=False)
        return has_more

    def _look_now_and_again(self) -> None:
        self._look()
        self._core.scheduler.call_later(INTERVAL, self._look_now_and_again)

    def _look_at(self, cause: HoldCause, *, refills: bool) -> None:
        disk = self.disks[cause]
        try:
            disk.look()
            if refills:
                disk.refill()
            self._failing.discard(cause)
        except OSError as error:
            self._failed(cause, error)
        if disk.is_low and cause not in self._core.low_disks:
            self._core.disk_is_low(cause, True)
            text = (
                f"{disk.directory} has {disk.room} bytes of space, less than {disk.limit}: the broker holds producers"
            )
            event("disk.low", text, logging.WARNING, **_facts(disk))
        elif not disk.is_low and cause in self._core.low_disks:
            self._core.disk_is_low(cause, False)
            text = f"{disk.directory} has {disk.room} bytes of space: the broker releases the held producers"
            event("disk.recovered", text, **_facts(disk))

    def _failed(self, cause: HoldCause, error: OSError) -> None:
        if cause not in self._failing:
            self._failing.add(cause)
            directory = str(self.disks[cause].directory)
            text = f"the disk of {directory} cannot be checked, or has no reserve: {error}"
            event("disk.failed", text, logging.WARNING, directory=directory)


def _facts(disk: Disk) -> dict[str, Any]:
    return {"directory": str(disk.directory), "free": disk.room, "limit": disk.limit}
