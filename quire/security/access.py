"""What one connection may do: the rules for its user, remembered until something changes; and the audit log.

The audit log says who did what to what, when, from where, by which door, allowed or refused: one JSON object a line.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from quire.clock import Clock
from quire.destination import DestinationKind
from quire.errors import AccessRefused, NotAuthenticated, QuireError
from quire.logs import event
from quire.security.accounts import Accounts
from quire.security.principal import Background, Origin, Permission, Principal
from quire.settings import Action, Settings, audit_file

MOST_WAITING = 10_000  # how many lines may wait to be written; those beyond are counted and lost


class AuditLog:
    """Writes the log off the event loop. Without users there is none: it would say what the broker's log says."""

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
        """Write that something was done or refused; ``data`` has never a body, never a secret."""
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


CACHED = 1000  # how many decisions one connection remembers; with more the memory begins anew


class Access:
    """One connection's view of the rules, made by ``Security.authenticate``. A door asks it once for each destination.

    After every change of users, rules or tokens, and when a proof ends, ``Security`` calls its watchers: then the door
    looks at ``ended``, and asks again about what its connection has open.
    """

    __slots__ = ("_accounts", "_audit", "_ended", "_generation", "_known", "_principal", "origin")

    def __init__(self, accounts: Accounts, audit: AuditLog, principal: Principal, origin: Origin) -> None:
        self._accounts = accounts
        self._audit = audit
        self._principal = principal
        self.origin = origin  # where the connection comes from
        self._generation = accounts.generation
        self._known: dict[tuple[Action, DestinationKind, str], bool] = {}
        self._ended = False

    @property
    def principal(self) -> Principal:
        """Who it is, with the roles of now."""
        self._renew()
        return self._principal

    @property
    def ended(self) -> QuireError | None:
        """Why the connection must be closed: the proof has ended, or the user is gone; None if all is well."""
        self._renew()
        if self._ended:
            return NotAuthenticated("the login is no longer valid: it has expired, or it was changed or revoked")
        return None

    def allows(self, action: Action, kind: DestinationKind, name: str) -> bool:
        """Whether it may do something with a destination; the name is plain, without wildcards."""
        return self._decide(action, kind, name, tells=False)

    def check(self, action: Action, kind: DestinationKind, name: str, *, exists: bool = True) -> None:
        """Refuse what it may not do with a destination; the audit log has it as the settings say.

        Args:
            exists: whether the destination is there; else it must be allowed to create it too.

        Raises:
            AccessRefused: it may not; whether the destination is there, the error does not say.
            NotAuthenticated: the login has ended.
        """
        if not self._decide(action, kind, name, tells=True):
            raise self.refusal(action, kind, name)
        if not exists and not self._decide(Action.CREATE, kind, name, tells=True):
            raise self.refusal(Action.CREATE, kind, name)

    def refusal(self, action: Action, kind: DestinationKind, name: str) -> QuireError:
        if error := self.ended:
            return error
        text = f"user {self._principal.name!r} may not {action} {kind}://{name}"
        return AccessRefused(text, action=str(action), destination=f"{kind}://{name}")

    def sees(self, kind: DestinationKind, name: str) -> bool:
        """Whether it may know that a destination is there, and its counts."""
        return self.may(Permission.MONITOR) or any(
            [self.allows(action, kind, name) for action in (Action.READ, Action.WRITE, Action.MANAGE)]
        )

    def may(self, permission: Permission) -> bool:
        """Whether it has a permission that is not about one destination."""
        self._renew()
        return not self._ended and self._principal.may(permission)

    def require(self, permission: Permission) -> None:
        if error := self.ended:
            raise error
        if not self._principal.may(permission):
            text = f"user {self._principal.name!r} has no role that may {permission}"
            raise AccessRefused(text, permission=str(permission))

    def _decide(self, action: Action, kind: DestinationKind, name: str, *, tells: bool) -> bool:
        if self._generation != self._accounts.generation:
            self._renew()
        key = (action, kind, name)
        known = self._known.get(key)
        if known is None:
            known = not self._ended and self._accounts.decide(self._principal, action, kind, name).allowed
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[key] = known
            if tells:
                self._audit.data_action(self._principal.name, self.origin, action, f"{kind}://{name}", allowed=known)
        return known

    def _renew(self) -> None:
        """After a change: who it is now, and nothing of what was known before."""
        if self._generation == self._accounts.generation:
            return
        self._generation = self._accounts.generation
        self._known.clear()
        standing = None if self._ended else self._accounts.standing(self._principal)
        self._ended = standing is None
        self._principal = standing or self._principal
