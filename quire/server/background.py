"""What takes long is done beside the event loop: on a thread, or in a process, as the daily backup of the store is."""

import asyncio
import contextlib
import json
import logging
import os
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, TypeVar

import quire
from quire.clock import Clock
from quire.errors import InvalidSettings
from quire.logs import event
from quire.scheduler import Scheduler
from quire.settings import BackupSettings
from quire.store.maintenance.backups import KeptBackups

T = TypeVar("T")


class BackgroundThread:
    """One thread with a queue (``quire.security.principal.Background``); it gives way to others as nice(2) says."""

    def __init__(self, name: str, limit: int, niceness: int = 0) -> None:
        self._limit = limit
        self._pending = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_give_way, initargs=(niceness,))
        self._idle = asyncio.Event()
        self._idle.set()

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Do some work, and call with its result or its exception; false if too much waits."""
        if self._pending >= self._limit:
            return False
        loop = asyncio.get_running_loop()
        self._pending += 1
        self._idle.clear()

        def job() -> None:
            result: Any
            try:
                result = work()
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(finished, result)

        def finished(result: T | Exception) -> None:
            self._pending -= 1
            if not self._pending:
                self._idle.set()
            done(result)

        self._executor.submit(job)
        return True

    async def stop(self) -> None:
        while self._pending:
            await self._idle.wait()
        self._executor.shutdown()


def _give_way(niceness: int) -> None:
    """Lower the priority of this thread; on Linux threads have their own."""
    if niceness and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def child_environment() -> dict[str, str]:
    """The broker's, with a path on which Python finds the very code that the broker runs, wherever it was started."""
    places = [str(Path(quire.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


LOOK = 30.0
"""The time of the day is looked at no less often than so, in seconds: clocks are set, and days have 23 or 25 hours."""

LONGEST_DAY = 26 * 3600
"""A backup that is due later than in so many seconds was planned with another clock."""


def next_time(at: time, now_ms: int) -> int:
    """When it is next so late in the day, in the machine's time zone; both in milliseconds since the epoch."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
    day = now.date() if now.time() < at else now.date() + timedelta(days=1)
    return int(datetime.combine(day, at).astimezone().timestamp() * 1000)


class Backups:
    """The daily backup of a broker's store. The age and the length of the last one are None before the first."""

    def __init__(self, settings: BackupSettings, url: str, clock: Clock, scheduler: Scheduler) -> None:
        self.failures = 0
        self.last_seconds: float | None = None
        self._settings = settings
        self._url = url
        self._clock = clock
        self._scheduler = scheduler
        self._newest_ms = clock.now_ms()
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._at = time.fromisoformat(settings.at) if settings.at else None
        if self._at and not url.startswith(("lmdb:", "sqlite:")):
            text = "backup.at: only LMDB and SQLite are backed up by the broker; use pg_dump for PostgreSQL"
            raise InvalidSettings(text, key="backup.at", value=settings.at)

    def start(self) -> None:
        if self._at is None:
            return
        self._newest_ms = KeptBackups(Path(self._settings.directory)).newest_ms() or self._newest_ms
        self._wait(next_time(self._at, self._clock.now_ms()))

    @property
    def age_seconds(self) -> float | None:
        """Time since the newest backup began, or since the start if there is none; None if none are asked for."""
        return None if self._at is None else max(self._clock.now_ms() - self._newest_ms, 0) / 1000

    def _wait(self, due_ms: int) -> None:
        remaining = (due_ms - self._clock.now_ms()) / 1000
        self._scheduler.call_later(min(max(remaining, 0.0), LOOK), lambda: self._look(due_ms))

    def _look(self, due_ms: int) -> None:
        assert self._at
        now = self._clock.now_ms()
        if now < due_ms:
            was_set_back = due_ms - now > LONGEST_DAY * 1000
            self._wait(next_time(self._at, now) if was_set_back else due_ms)
            return
        self._wait(next_time(self._at, now))
        self._begin()

    def _begin(self) -> None:
        if self._task is not None and not self._task.done():
            self._failed("the backup of the day before is still under way")
            return
        self._task = asyncio.get_running_loop().create_task(self._back_up())

    async def _back_up(self) -> None:
        began_ms, began = self._clock.now_ms(), self._clock.monotonic()
        directory, keep = self._settings.directory, self._settings.keep
        event("backup.started", f"backing the store up to {directory}", directory=directory)
        arguments = ("-P", "-m", "quire.store.maintenance.backups", self._url, directory, str(keep))
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=PIPE, env=child_environment()
            )
            output, _ = await self._process.communicate()
            result: dict[str, Any] = json.loads(output or b"{}")
        except (OSError, ValueError) as error:
            self._failed(f"the backup failed: {error}")
            return
        self.last_seconds = self._clock.monotonic() - began
        if self._process.returncode != 0:
            self._failed(f"the backup failed: {result.get('error', f'exit code {self._process.returncode}')}")
            return
        self._newest_ms = began_ms
        text = f"backed the store up to {result['target']} in {self.last_seconds:.1f} s"
        event("backup.done", text, seconds=round(self.last_seconds, 1), **result)

    def _failed(self, text: str) -> None:
        self.failures += 1
        event("backup.failed", text, logging.ERROR, directory=self._settings.directory)

    async def stop(self) -> None:
        """End a backup that is under way; what it has written is removed by the next one."""
        if self._task is None or self._task.done():
            return
        self._task.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
