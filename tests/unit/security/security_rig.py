"""A broker's security without a broker: work of threads is done at once, or when the test says so."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from quire.clock import ManualClock
from quire.destination import Destination
from quire.errors import QuireError
from quire.scheduler import Scheduler
from quire.security import Access, Action, Credentials, Origin, Security
from quire.security.authentication import hashed
from quire.security.principal import Background
from quire.settings import Settings
from quire.settings.keys import JwtSettings, SecuritySettings, StoreSettings
from quire.settings.users import read_rules, read_users
from quire.testing.stepped import Inline

T = TypeVar("T")

HERE = Origin("stomp", "192.0.2.1:5000")


@cache
def hash_of(password: str) -> str:
    """Its hash, made once: that takes long."""
    return hashed(password)


def user(name: str, *roles: str, **more: Any) -> dict[str, Any]:
    """A user of the settings file; the password is the name."""
    return {"name": name, "password_hash": hash_of(name), "roles": list(roles), **more}


def allow(subject: str, destination: str, *actions: str) -> dict[str, Any]:
    return {"subject": subject, "allow": list(actions or ("read",)), "destination": destination}


def deny(subject: str, destination: str, *actions: str) -> dict[str, Any]:
    return {"subject": subject, "deny": list(actions or ("read",)), "destination": destination}


def secured(
    users: list[dict[str, Any]], rules: list[dict[str, Any]] | None = None, data: Path | None = None,
    jwt: dict[str, Any] | None = None, **security: Any,
) -> Settings:  # fmt: skip
    return replace(
        Settings(),
        users=read_users(users, "test"),
        rules=read_rules(rules or [], "test"),
        store=StoreSettings(data=str(data or "/nowhere")),
        security=SecuritySettings(**security),
        jwt=JwtSettings(**jwt or {}),
    )


class Later:
    """Work that is done when the test says so; so much may wait."""

    def __init__(self, limit: int = 10) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.limit = limit

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        if len(self.waiting) >= self.limit:
            return False
        self.waiting.append(lambda: done(work()))
        return True

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()


class Rig:
    def __init__(
        self,
        settings: Settings,
        hashing: Background | None = None,
        files: Background | None = None,
        network: Background | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.security = Security(
            settings,
            self.clock,
            self.scheduler,
            hashing or Inline(),
            files or Inline(),
            network or Inline(),
            is_dead_letter,
        )
        self.outcomes: list[Access | QuireError] = []

    def login(self, name: str, password: str | None = None, origin: Origin = HERE) -> Access:
        return accepted(self.attempt(name, password, origin))

    def attempt(self, name: str, password: str | None = None, origin: Origin = HERE) -> Access | QuireError | None:
        """Try to log in; None if the outcome is not there yet."""
        return self.show(Credentials(name, name if password is None else password), origin)

    def show(self, credentials: Credentials, origin: Origin = HERE) -> Access | QuireError | None:
        before = len(self.outcomes)
        self.security.authenticate(credentials, origin, self.outcomes.append)
        return self.outcomes[-1] if len(self.outcomes) > before else None

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.scheduler.run_due()


def accepted(outcome: Access | QuireError | None) -> Access:
    assert isinstance(outcome, Access), outcome
    return outcome


def is_dead_letter(destination: Destination) -> bool:
    return destination.name == "DLQ"


READ, WRITE, CREATE, MANAGE = Action.READ, Action.WRITE, Action.CREATE, Action.MANAGE
