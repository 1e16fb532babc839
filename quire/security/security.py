"""The users, rules and tokens of a broker: the one place that decides for every door."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace

from quire.clock import Clock
from quire.destination import Destination
from quire.errors import AccessRefused, NotAuthenticated
from quire.scheduler import Scheduler
from quire.security.access import Access
from quire.security.account_changes import AccountChanges
from quire.security.accounts import Accounts
from quire.security.audit_log import AuditLog
from quire.security.authentication import Authenticated, Authentication
from quire.security.background import Background
from quire.security.credentials import Credentials, Origin
from quire.security.passwords import hashed
from quire.security.principal import ANYONE, Principal, Proof
from quire.security.saved_state import SavedState, load_state, save_state
from quire.settings import Settings, User, security_file

FIRST_USER = "admin"
"""The administrator that a broker makes when it has no users."""


class Security:
    """Decides who one is and what one may do. Every door gives it what a client shows, and gets an ``Access``.

    Args:
        hashing: where passwords are checked, with a short queue.
        files: where files are written.
        network: where the keys of an issuer of access tokens are read.
        is_dead_letter: whether a destination is where dead letters go.

    Attributes:
        accounts: users, rules and tokens.
        hashing: where passwords are hashed.
        audit: the audit log.
        changes: makes changes while the broker runs.
        guesses: the logins that failed.
    """

    def __init__(
        self, settings: Settings, clock: Clock, scheduler: Scheduler, hashing: Background, files: Background,
        network: Background, is_dead_letter: Callable[[Destination], bool],
    ) -> None:  # fmt: skip
        self.accounts = Accounts(settings, clock, scheduler, is_dead_letter)
        self.hashing = hashing
        self.audit = AuditLog(settings, clock, files, lambda: self.is_enabled)
        self._authentication = Authentication(self.accounts, self.audit, clock, scheduler, hashing, network)
        self.changes = AccountChanges(self.accounts, clock, files)
        self.guesses = self._authentication.guesses
        self._take(settings, SavedState())

    @property
    def is_enabled(self) -> bool:
        """Whether clients must log in; while there are no users, all may do everything."""
        return self.accounts.is_enabled

    def load(self) -> None:
        """Read what was made at run time, at the start of the process. It may raise ``InvalidSettings``."""
        settings = self.accounts.settings
        if file := security_file(settings):
            self._take(settings, load_state(file))

    def make_first_user(self) -> str | None:
        """Make the user ``admin`` if clients must log in and no one could: its password; else None. At the start."""
        settings = self.accounts.settings
        if not self.is_enabled or self.accounts.users or settings.jwt.issuer:
            return None
        password = secrets.token_urlsafe(16)
        user = User(FIRST_USER, hashed(password), frozenset({"administrator"}), in_file=False)
        state = replace(self.accounts.state, users={FIRST_USER: user})
        if file := security_file(settings):
            save_state(file, state)
        self._take(settings, state)
        return password

    def reload(self, settings: Settings) -> None:
        """The settings were read again."""
        self._take(settings, self.accounts.state)

    def authenticate(self, credentials: Credentials, origin: Origin, done: Authenticated) -> None:
        """Find out who a client is.

        Args:
            credentials: what it has shown.
            origin: where it comes from.
            done: called with its ``Access``, or with the error that refuses it: at once, or some seconds later. The
                client may be gone by then.
        """
        self._authentication.authenticate(credentials, origin, done)

    def vouched(self, user: str, roles: Iterable[str], origin: Origin) -> Access:
        """What a client may do that has logged in at another process of the cluster.

        Args:
            user: as whom; empty if it need not log in there.
            roles: its roles that count.
            origin: where the client comes from.

        Raises:
            NotAuthenticated: clients must log in here, and it has not, or its user is disabled.
        """
        principal = Principal(user, frozenset(roles), Proof.PEER) if user else ANYONE
        if self.accounts.standing(principal) is None:
            raise NotAuthenticated("another process of the cluster names a user that may not log in here")
        return Access(self.accounts, self.audit, principal, origin)

    def recalled(self, text: str, origin: Origin) -> Access:
        """What someone may do now who has asked earlier for what is done now (``Accounts.remembered``).

        Raises:
            AccessRefused: the user is gone or disabled.
        """
        principal = self.accounts.recalled(text)
        if principal is None:
            raise AccessRefused("the user who has asked for it is gone or disabled")
        return Access(self.accounts, self.audit, principal, origin)

    def no_one(self, origin: Origin) -> Access:
        """One that may do nothing: for what needs no login."""
        return Access(self.accounts, self.audit, Principal(""), origin)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call when anything changes: then a door looks at each connection's ``Access.ended``, and asks it again.

        A door that has many connections does so in steps.
        """
        self.accounts.watch(watcher)

    def _take(self, settings: Settings, state: SavedState) -> None:
        self._authentication.reload(settings)
        self.audit.reload(settings)
        self.accounts.take(settings, state)
