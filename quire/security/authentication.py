"""From what a client shows to who it is: the one place that decides for every door (``Security``).

Hashes of passwords are argon2id, as OWASP advises; a check takes about 20 ms, and is done on one thread. Guesses are
slowed down: after failed logins the next ones wait. Nothing is locked, so no one can lock out another. What cannot be a
guess is no part of that, and waits for none: a token has 256 bits; a password that was wrong before says nothing new.
Where a user has logged in before, only the failures of its own name count.
"""

import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from quire.clock import Clock
from quire.destination import Destination
from quire.errors import AccessRefused, BrokerBusy, InvalidArgument, NotAuthenticated, QuireError, TooManyLogins
from quire.logs import event
from quire.scheduler import Scheduler
from quire.security.access import Access, AuditLog
from quire.security.accounts import AccountChanges, Accounts, SavedState, load_state, save_state, split_token
from quire.security.principal import ANYONE, Background, Credentials, Origin, Principal, Proof
from quire.settings import JwtSettings, Settings, User, security_file

if TYPE_CHECKING:
    from quire.security.jwt_verifier import JwtVerifier


LONGEST = 1024  # the longest password, in bytes

REMEMBERED = 10_000
"""Of how many users the broker remembers that their password was right, and how many wrong ones it remembers."""

_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_NONE = _HASHER.hash(secrets.token_urlsafe(16))
"""What the password of an unknown user is compared with: it costs as much as that of a known one."""


def hashed(password: str) -> str:
    if not 0 < len(password.encode()) <= LONGEST:
        raise InvalidArgument(f"a password has 1 to {LONGEST} bytes", argument="password")
    return _HASHER.hash(password)


def is_right(password_hash: str, password: str) -> bool:
    """Whether a password is that of a hash; without a hash no password is right, after the same time."""
    try:
        _HASHER.verify(password_hash or _NONE, password[:LONGEST])
    except (VerificationError, InvalidHashError):
        return False
    return bool(password_hash)


class RememberedPasswords:
    """Which passwords were right, and which wrong: a digest of each, with a key that only this process has.

    A digest is about one hash, so a user that changes is looked at anew.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[str, bytes] = OrderedDict()  # by user
        self._wrong: OrderedDict[bytes, None] = OrderedDict()

    def known(self, name: str, password_hash: str, password: str) -> bool | None:
        """None if neither is remembered."""
        digest = self._digest(name, password_hash, password)
        if (right := self._right.get(name)) is not None and hmac.compare_digest(right, digest):
            return True
        return False if digest in self._wrong else None

    def remember(self, name: str, password_hash: str, password: str, *, right: bool) -> None:
        digest = self._digest(name, password_hash, password)
        if right:
            self._right[name] = digest
            self._right.move_to_end(name)
        else:
            self._wrong[digest] = None
        for kept in (self._right, self._wrong):
            if len(kept) > REMEMBERED:
                kept.popitem(last=False)

    def _digest(self, name: str, password_hash: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\0{password_hash}\0{password}".encode(), hashlib.sha256)


KEPT = 20_000  # of how many names and addresses failures are remembered; the oldest are forgotten first
FORGET_AFTER = 900.0  # after so many seconds without a failure, those before do not count

FIRST_DELAY = 0.25
"""How many seconds the second guess of a name from an address waits; each later one waits twice as long."""

LONGEST_DELAY = 60.0
NAME_DELAY = 0.1  # how many seconds pass between guesses of one name from all addresses, after some failures
ADDRESS_DELAY = 0.25  # the same for all names from one address
TOLERATED = 10  # how many failures of a name alone, or of an address alone, cost nothing
LONGEST_NAME = 200  # so many characters of a name count: no user has a longer one


class _Scope(Enum):
    BOTH = "a name from an address"
    NAME = "a name"
    ADDRESS = "an address"
    NO_GUESS = "from an address, what is no guess: it makes nothing wait"


_Key = tuple[_Scope, str, str]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0  # when the last one was
    next: float = 0.0  # when the next guess may be made


class Guesses:
    """The failures by (name, address), by name and by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()  # names, and from where they have logged in
        self.failed_total = 0

    def wait(self, name: str, address: str) -> float:
        now = self._clock.monotonic()
        return max([failures.next - now for _, failures in self._found(name, address)] + [0.0])

    def begin(self, name: str, address: str) -> float:
        """A guess is about to be made: in how many seconds. The next one has to wait for longer."""
        start = self._clock.monotonic() + self.wait(name, address)
        for key, failures in self._found(name, address):
            failures.next = start + _delay(key, failures.count)
        return start - self._clock.monotonic()

    def failed(self, name: str, address: str) -> int:
        return self._count(_keys(name, address))

    def failed_without_a_guess(self, address: str) -> int:
        """What was wrong can be no guess; how much of that came from this address."""
        return self._count([(_Scope.NO_GUESS, "", address)])

    def _count(self, keys: Sequence[_Key]) -> int:
        self.failed_total += 1
        now = self._clock.monotonic()
        for key in keys:
            failures = self._failures.setdefault(key, _Failures())
            if now - failures.last > FORGET_AFTER:
                failures.count = 0
            failures.count += 1
            failures.last = now
            failures.next = max(failures.next, now + _delay(key, failures.count))
            self._failures.move_to_end(key)
        while len(self._failures) > KEPT:
            self._failures.popitem(last=False)
        return self._failures[keys[0]].count

    def succeeded(self, name: str, address: str) -> None:
        """It was right: what this address failed of this name is forgiven, and the name is known there."""
        self._failures.pop((_Scope.BOTH, name[:LONGEST_NAME], address), None)
        self._known[name, address] = None
        self._known.move_to_end((name, address))
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def is_known(self, name: str, address: str) -> bool:
        return (name, address) in self._known

    def _found(self, name: str, address: str) -> list[tuple[_Key, _Failures]]:
        keys = _keys(name, address)[: 1 if self.is_known(name, address) else None]
        return [(key, self._failures[key]) for key in keys if key in self._failures]


def _keys(name: str, address: str) -> tuple[_Key, ...]:
    name = name[:LONGEST_NAME]
    return (_Scope.BOTH, name, address), (_Scope.NAME, name, ""), (_Scope.ADDRESS, "", address)


def _delay(key: _Key, count: int) -> float:
    if key[0] is _Scope.BOTH:
        return min(FIRST_DELAY * 2.0 ** min(count - 1, 30), LONGEST_DELAY)
    if count <= TOLERATED or key[0] is _Scope.NO_GUESS:
        return 0.0
    return NAME_DELAY if key[0] is _Scope.NAME else ADDRESS_DELAY


LONGEST_WAIT = 5.0
"""How many seconds a login may wait because others failed; if it had to wait longer, it is refused at once."""

MOST_WAITING = 256  # how many logins may wait so

Authenticated = Callable[[Access | QuireError], None]
"""What is called with the outcome: at once, or later."""

_Outcome = Callable[[Principal | QuireError], None]


FIRST_USER = "admin"  # the administrator that a broker makes when it has no users


class Security:
    """Decides who one is and what one may do. Every door gives it what a client shows, and gets an ``Access``.

    Args:
        hashing: where passwords are checked, with a short queue.
        network: where the keys of an issuer of access tokens are read.
    """

    def __init__(
        self, settings: Settings, clock: Clock, scheduler: Scheduler, hashing: Background, files: Background,
        network: Background, is_dead_letter: Callable[[Destination], bool],
    ) -> None:  # fmt: skip
        self.accounts = Accounts(settings, clock, scheduler, is_dead_letter)
        self.hashing = hashing
        self.audit = AuditLog(settings, clock, files, lambda: self.is_enabled)
        self.changes = AccountChanges(self.accounts, clock, files)
        self.guesses = Guesses(clock)
        self._clock = clock
        self._scheduler = scheduler
        self._network = network
        self._remembered = RememberedPasswords()
        self._waiting = 0
        self._issuer = JwtSettings()
        self._jwt: JwtVerifier | None = None
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
        self._take(settings, self.accounts.state)

    def authenticate(self, credentials: Credentials, origin: Origin, done: Authenticated) -> None:
        """Find out who a client is: at once, or some seconds later, when the client may be gone."""
        if not self.accounts.is_enabled:
            done(self._access(ANYONE, origin))
            return
        secret = credentials.token or credentials.passcode
        if not secret and (credentials.certificate or not credentials.login):
            self._by_certificate(credentials, origin, done)
            return
        self._prove(credentials, origin, secret, done)

    def vouched(self, user: str, roles: Iterable[str], origin: Origin) -> Access:
        """What a client may do that has logged in at another process of the cluster; without a user if it need not."""
        principal = Principal(user, frozenset(roles), Proof.PEER) if user else ANYONE
        if self.accounts.standing(principal) is None:
            raise NotAuthenticated("another process of the cluster names a user that may not log in here")
        return self._access(principal, origin)

    def recalled(self, text: str, origin: Origin) -> Access:
        """What someone may do now who has asked earlier for what is done now (``Accounts.remembered``)."""
        principal = self.accounts.recalled(text)
        if principal is None:
            raise AccessRefused("the user who has asked for it is gone or disabled")
        return self._access(principal, origin)

    def no_one(self, origin: Origin) -> Access:
        """One that may do nothing: for what needs no login."""
        return self._access(Principal(""), origin)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call when anything changes: then a door looks at each connection's ``Access.ended``, and asks it again.

        A door that has many connections does so in steps.
        """
        self.accounts.watch(watcher)

    def _take(self, settings: Settings, state: SavedState) -> None:
        if settings.jwt != self._issuer:
            self._issuer = settings.jwt
            self._jwt = self._verifier(settings.jwt) if settings.jwt.issuer else None
        self.audit.reload(settings)
        self.accounts.take(settings, state)

    def _verifier(self, settings: JwtSettings) -> "JwtVerifier":
        # What it imports takes 8 MB of memory.
        from quire.security.jwt_verifier import JwtVerifier

        return JwtVerifier(settings, self._clock, self._network)

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
        return Access(self.accounts, self.audit, principal, origin)

    def _by_certificate(self, credentials: Credentials, origin: Origin, done: Authenticated) -> None:
        subject = credentials.certificate
        user = self.accounts.user_of_certificate(subject) if subject else None
        if user is None or credentials.login not in ("", user.name):
            text = "the client certificate is that of another user" if subject else "log in with a name and a password"
            done(NotAuthenticated(text))
            return
        done(self._access(Principal(user.name, user.roles, Proof.CERTIFICATE, None, subject), origin))

    def _by_token(self, text: str) -> Principal | QuireError:
        id, secret = split_token(text) or ("", "")
        token = self.accounts.token(id)
        if token is None or not token.is_secret(secret):
            return _wrong()
        return self.accounts.standing_of_token(token) or _wrong()

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

        if not self.hashing.run(lambda: is_right(password_hash, password), checked):
            done(BrokerBusy("too many logins wait: try again later"))

    def _usable(self, name: str) -> User | None:
        user = self.accounts.users.get(name)
        return None if user is None or user.disabled else user

    def _finished(
        self, credentials: Credentials, origin: Origin, outcome: Principal | QuireError, done: Authenticated, *,
        is_guess: bool,
    ) -> None:  # fmt: skip
        # A token is not for the login of another user, and a JWT not for a user who is disabled.
        if not isinstance(outcome, QuireError) and (
            credentials.login not in ("", outcome.name) or self.accounts.standing(outcome) is None
        ):
            outcome = _wrong()
        if not isinstance(outcome, QuireError):
            if is_guess:
                self.guesses.succeeded(credentials.login, origin.network)
            self.accounts.expires(outcome.expires_at)
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
            self.audit.record(name, origin, "login", "broker", allowed=False, data={"times": count})


def _hash(user: User | None) -> str:
    return "" if user is None else user.password_hash


def _by_its_password(user: User) -> Principal:
    return Principal(user.name, user.roles, Proof.PASSWORD, None, user.password_hash)


def _wrong() -> NotAuthenticated:
    """One answer for an unknown user, a wrong password, a revoked token."""
    return NotAuthenticated("the user, the password or the token is wrong")
