"""The users, rules and tokens of a broker: the one place that decides for every door."""

from collections.abc import Callable

from quire.clock import Clock
from quire.destination import Destination
from quire.scheduler import Scheduler
from quire.security.accounts import Accounts
from quire.security.audit_log import AuditLog
from quire.security.authentication import Authenticated, Authentication
from quire.security.background import Background
from quire.security.credentials import Credentials, Origin
from quire.security.saved_state import SavedState, load_state
from quire.settings import Settings, security_file


class Security:
    """Decides who one is and what one may do. Every door gives it what a client shows, and gets an ``Access``.

    Args:
        hashing: where passwords are checked, with a short queue.
        files: where files are read and written.
        is_dead_letter: whether a destination is where dead letters go.

    Attributes:
        accounts: users, rules and tokens.
        audit: the audit log.
        guesses: the logins that failed.
    """

    def __init__(
        self, settings: Settings, clock: Clock, scheduler: Scheduler, hashing: Background, files: Background,
        is_dead_letter: Callable[[Destination], bool],
    ) -> None:  # fmt: skip
        self.accounts = Accounts(settings, clock, scheduler, is_dead_letter)
        self.audit = AuditLog(settings, clock, files)
        self._authentication = Authentication(self.accounts, self.audit, clock, scheduler, hashing, files)
        self.guesses = self._authentication.guesses
        self._take(settings, SavedState())

    @property
    def is_enabled(self) -> bool:
        """Whether clients must log in; while there are no users, all may do everything."""
        return self.accounts.is_enabled

    def load(self) -> None:
        """Read what was made at run time, at the start of the process. It may raise ``InvalidSettings``."""
        settings = self.accounts.settings
        self._take(settings, load_state(security_file(settings)))

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

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call when anything changes: then a door looks at each connection's ``Access.ended``, and asks it again.

        A door that has many connections does so in steps.
        """
        self.accounts.watch(watcher)

    def _take(self, settings: Settings, state: SavedState) -> None:
        self._authentication.reload(settings)
        self.audit.reload(settings)
        self.accounts.take(settings, state)
        self.audit.enabled = self.is_enabled
