"""The audit log: who did what to what, when, from where, by which door, allowed or refused. One JSON object a line."""

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from quire.clock import Clock
from quire.errors import QuireError
from quire.logs import event
from quire.security.background import Background
from quire.security.credentials import Origin
from quire.settings import Action, Settings, audit_file

MOST_WAITING = 10_000
"""How many lines may wait to be written; those beyond are counted and lost."""


class AuditLog:
    """Writes the log off the event loop.

    Args:
        is_enabled: whether it is written; without users it says nothing that the broker's log does not.

    Attributes:
        dropped: how many lines were lost because too many waited, or the disk refused them.
    """

    def __init__(
        self, settings: Settings, clock: Clock, background: Background, is_enabled: Callable[[], bool]
    ) -> None:
        self.dropped = 0
        self._is_enabled = is_enabled
        self._clock = clock
        self._background = background
        self._file = audit_file(settings)
        self._waiting: deque[bytes] = deque()
        self._is_writing = False
        self._is_failing = False
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """The settings were read again."""
        security = settings.security
        self._data, self._size, self._count = security.audit_data, security.audit_size, security.audit_count

    def data_action(self, user: str, origin: Origin, action: Action, destination: str, *, allowed: bool) -> None:
        """A connection reads, sends or creates for the first time; to manage is an operator's action."""
        if self._data == "all" or action is Action.MANAGE or (self._data == "refused" and not allowed):
            self.record(user, origin, action, destination, allowed=allowed)

    def record(
        self, user: str, origin: Origin, action: str, target: str, *, allowed: bool,
        data: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write that something was done or refused.

        Args:
            user: who did it; empty if that is not known.
            origin: from where, by which door.
            action: what: a verb, or a name such as ``queue.deleted``.
            target: to what.
            allowed: whether the broker allowed it.
            data: what more there is to know; never a body, never a secret.
        """
        if not self._is_enabled() or self._file is None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": now,
            "user": user,
            "door": origin.door,
            "address": origin.address,
            "action": str(action),
        }
        line |= {"target": target, "allowed": allowed, "data": data or {}}
        self._waiting.append(msgspec.json.encode(line, enc_hook=str) + b"\n")
        self._write()

    def _write(self) -> None:
        file = self._file
        if self._is_writing or not self._waiting or file is None:
            return
        lines = list(self._waiting)
        self._waiting.clear()
        self._is_writing = True
        if not self._background.run(
            lambda: self._append(file, lines), lambda result: self._written(len(lines), result)
        ):
            self._is_writing = False
            self.dropped += len(lines)

    def _written(self, count: int, result: Exception | None) -> None:
        self._is_writing = False
        if result is not None:
            self.dropped += count
        if (result is not None) is not self._is_failing:
            self._is_failing = not self._is_failing
            text = f"the audit log {self._file} "
            text += f"cannot be written: {result}" if self._is_failing else "is written again"
            event("audit.failed", text, logging.ERROR if self._is_failing else logging.INFO, file=str(self._file))
        self._write()

    def _append(self, file: Path, lines: list[bytes]) -> None:
        """On a thread: write some lines, and begin a new file when this one is large enough."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "ab") as target:
                target.write(b"".join(lines))
                size = target.tell()
            if size >= self._size:
                rotate(file, self._count)
        except OSError as error:
            raise QuireError(f"{error.strerror}") from error


def rotate(file: Path, count: int) -> None:
    """Number the older files: ``audit.log.1`` is the newest of them."""
    file.with_name(f"{file.name}.{count}").unlink(missing_ok=True)
    for number in range(count - 1, 0, -1):
        old = file.with_name(f"{file.name}.{number}")
        if old.exists():
            old.replace(file.with_name(f"{file.name}.{number + 1}"))
    if count:
        file.replace(file.with_name(f"{file.name}.1"))
    else:
        file.unlink()
