"""From what a client shows to who it is. Guesses of passwords are slowed down; passwords are checked on a thread."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.clock import Clock
from quire.errors import BrokerBusy, NotAuthenticated, QuireError, TooManyLogins
from quire.logs import event
from quire.scheduler import Scheduler
from quire.security.access import Access
from quire.security.accounts import Accounts
from quire.security.audit_log import AuditLog
from quire.security.background import Background
from quire.security.credentials import Credentials, Origin
from quire.security.guesses import Guesses
from quire.security.passwords import RememberedPasswords, is_right
from quire.security.principal import ANYONE, Principal, Proof
from quire.security.tokens import split_token
from quire.settings import JwtSettings, Settings, User

if TYPE_CHECKING:
    from quire.security.jwt_verifier import JwtVerifier

LONGEST_WAIT = 5.0
"""How many seconds a login may wait because others failed; if it had to wait longer, it is refused at once."""

MOST_WAITING = 256
"""How many logins may wait so."""

Authenticated = Callable[[Access | QuireError], None]
"""What is called with the outcome: at once, or later."""

_Outcome = Callable[[Principal | QuireError], None]


class Authentication:
    """All logins of a broker."""

    def __init__(
        self, accounts: Accounts, audit: AuditLog, clock: Clock, scheduler: Scheduler, hashing: Background,
        network: Background,
    ) -> None:  # fmt: skip
        self.guesses = Guesses(clock)
        self._accounts = accounts
        self._audit = audit
        self._clock = clock
        self._scheduler = scheduler
        self._hashing = hashing
        self._network = network
        self._remembered = RememberedPasswords()
        self._waiting = 0
        self._issuer = JwtSettings()
        self._jwt: JwtVerifier | None = None

    def reload(self, settings: Settings) -> None:
        """The settings were read again."""
        if settings.jwt != self._issuer:
            self._issuer = settings.jwt
            self._jwt = self._verifier(settings.jwt) if settings.jwt.issuer else None

    def _verifier(self, settings: JwtSettings) -> "JwtVerifier":
        # What it imports takes 8 MB of memory.
        from quire.security.jwt_verifier import JwtVerifier

        return JwtVerifier(settings, self._clock, self._network)

    def authenticate(self, credentials: Credentials, origin: Origin, done: Authenticated) -> None:
        """Find out who a client is."""
        if not self._accounts.is_enabled:
            done(self._access(ANYONE, origin))
            return
        secret = credentials.token or credentials.passcode
        if not secret and (credentials.certificate or not credentials.login):
            self._by_certificate(credentials, origin, done)
            return
        self._prove(credentials, origin, secret, done)

    def _prove(self, credentials: Credentials, origin: Origin, secret: str, done: Authenticated) -> None:
        """Look at the secret at once if that costs nothing and tells a guesser nothing; else it may have to wait."""

        def known(outcome: Principal | QuireError) -> None:
            self._finished(credentials, origin, outcome, done, is_guess=False)

        if split_token(secret) is not None:
            known(self._by_token(secret))
        elif self._jwt is not None and self._jwt.takes(secret):
            self._jwt.verify(secret, known)
        elif credentials.token:
            known(_wrong())
        elif (outcome := self._remembered_outcome(credentials.login, secret, origin.network)) is not None:
            known(outcome)
        else:
            self._guess(credentials, origin, done)

    def _guess(self, credentials: Credentials, origin: Origin, done: Authenticated) -> None:
        """Check a password on the thread for that, after the wait that failures before it have earned."""
        name, network = credentials.login, origin.network
        wait = self.guesses.wait(name, network)
        if wait > LONGEST_WAIT:
            text = f"too many logins have failed: try again in {wait:.0f} s"
            done(TooManyLogins(text, retry_after=round(wait, 1)))
            return
        if wait and self._waiting >= MOST_WAITING:
            done(BrokerBusy("too many logins wait: try again later"))
            return
        wait = self.guesses.begin(name, network)

        def attempt() -> None:
            self._by_password(
                name, credentials.passcode,
                lambda outcome: self._finished(credentials, origin, outcome, done, is_guess=True),
            )  # fmt: skip

        if wait <= 0:
            attempt()
            return
        self._waiting += 1

        def later() -> None:
            self._waiting -= 1
            attempt()

        self._scheduler.call_later(wait, later)

    def _access(self, principal: Principal, origin: Origin) -> Access:
        return Access(self._accounts, self._audit, principal, origin)

    def _by_certificate(self, credentials: Credentials, origin: Origin, done: Authenticated) -> None:
        subject = credentials.certificate
        user = self._accounts.user_of_certificate(subject) if subject else None
        if user is None or credentials.login not in ("", user.name):
            text = "the client certificate is that of another user" if subject else "log in with a name and a password"
            done(NotAuthenticated(text))
            return
        done(self._access(Principal(user.name, user.roles, Proof.CERTIFICATE, None, subject), origin))

    def _by_token(self, text: str) -> Principal | QuireError:
        id, secret = split_token(text) or ("", "")
        token = self._accounts.token(id)
        if token is None or not token.is_secret(secret):
            return _wrong()
        return self._accounts.standing_of_token(token) or _wrong()

    def _remembered_outcome(self, name: str, password: str, network: str) -> Principal | QuireError | None:
        """What is known of a password without a check.

        A right one passes only where its user has logged in before: elsewhere, many guesses a second would find it.
        """
        user = self._usable(name)
        was_right = self._remembered.known(name, _hash(user), password)
        if was_right is False:
            return _wrong()
        if was_right and user is not None and self.guesses.is_known(name, network):
            return _by_its_password(user)
        return None

    def _by_password(self, name: str, password: str, done: _Outcome) -> None:
        user = self._usable(name)
        password_hash = _hash(user)
        if user is not None and self._remembered.known(name, password_hash, password):
            done(_by_its_password(user))
            return

        def checked(result: bool | Exception) -> None:
            if isinstance(result, bool):
                self._remembered.remember(name, password_hash, password, right=result)
            user = self._usable(name)
            same = user is not None and user.password_hash == password_hash
            done(_by_its_password(user) if result is True and same and user is not None else _wrong())

        if not self._hashing.run(lambda: is_right(password_hash, password), checked):
            done(BrokerBusy("too many logins wait: try again later"))

    def _usable(self, name: str) -> User | None:
        """The user of a name who may log in."""
        user = self._accounts.users.get(name)
        return None if user is None or user.disabled else user

    def _finished(
        self, credentials: Credentials, origin: Origin, outcome: Principal | QuireError, done: Authenticated, *,
        is_guess: bool,
    ) -> None:  # fmt: skip
        # A token is not for the login of another user, and a JWT not for a user who is disabled.
        if not isinstance(outcome, QuireError) and (
            credentials.login not in ("", outcome.name) or self._accounts.standing(outcome) is None
        ):
            outcome = _wrong()
        if not isinstance(outcome, QuireError):
            if is_guess:
                self.guesses.succeeded(credentials.login, origin.network)
            self._accounts.expires(outcome.expires_at)
            done(self._access(outcome, origin))
            return
        if isinstance(outcome, NotAuthenticated):
            self._failed(credentials.login, origin, is_guess=is_guess)
        done(outcome)

    def _failed(self, login: str, origin: Origin, *, is_guess: bool) -> None:
        network = origin.network
        count = self.guesses.failed(login, network) if is_guess else self.guesses.failed_without_a_guess(network)
        if count & (count - 1) == 0:  # each step of the delay that doubles, not each guess
            name = login[:100]
            text = f"the login of {name!r} from {origin.address} by {origin.door} failed ({count} times)"
            event("login.failed", text, logging.WARNING, user=name, address=origin.address, times=count)
            self._audit.record(name, origin, "login", "broker", allowed=False, data={"times": count})


def _hash(user: User | None) -> str:
    return "" if user is None else user.password_hash


def _by_its_password(user: User) -> Principal:
    return Principal(user.name, user.roles, Proof.PASSWORD, None, user.password_hash)


def _wrong() -> NotAuthenticated:
    """One answer for an unknown user, a wrong password, a revoked token."""
    return NotAuthenticated("the user, the password or the token is wrong")
