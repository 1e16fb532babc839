"""Access tokens of an OAuth 2 server: JWT with a signature, checked with the keys of the issuer."""

import logging
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import msgspec

from quire.clock import Clock
from quire.errors import BrokerBusy, NotAuthenticated, QuireError
from quire.logs import event
from quire.security.principal import Background, Principal, Proof
from quire.settings import JwtSettings
from quire.settings.users import MOST_ROLES, is_name

_JWT = re.compile(r"eyJ[\w-]{1,8000}\.[\w-]{1,12000}\.[\w-]{1,4000}")
FETCH_LIMIT = 5.0  # how long the issuer may take to send its keys, in seconds
MAX_SIZE = 1 << 20  # how large its keys may be, in bytes
RETRY_AFTER = 10.0  # an unknown key makes the broker read the keys again, at most once in so many seconds
MOST_WAITING = 256  # how many logins may wait for the keys
LATEST = 1 << 40  # the latest time that counts as one, in seconds since the epoch
LEEWAY_MS = 10_000  # how far the clocks of issuer and broker may be apart

Verified = Callable[[Principal | QuireError], None]


class JwtVerifier:
    """Checks access tokens. It reads the keys off the event loop, and again from time to time."""

    def __init__(self, settings: JwtSettings, clock: Clock, background: Background) -> None:
        self._settings = settings
        self._clock = clock
        self._background = background
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at: float | None = None  # when the keys were last asked for
        self._is_reading = False
        self._is_failing = False
        self._waiting: list[tuple[str, Verified]] = []

    def takes(self, text: str) -> bool:
        return _JWT.fullmatch(text) is not None

    def verify(self, token: str, done: Verified) -> None:
        """Check a token, and call with its user, or with why it is refused; it may wait for the keys first."""
        age = None if self._read_at is None else self._clock.monotonic() - self._read_at
        unknown = self._key_of(token) is None
        if age is None or (unknown and age >= RETRY_AFTER) or (unknown and self._is_reading):
            if len(self._waiting) >= MOST_WAITING:
                done(BrokerBusy("too many logins wait for the keys of access tokens"))
                return
            self._waiting.append((token, done))
            self._read_keys()
            return
        if age >= self._settings.refresh:
            self._read_keys()
        done(self._outcome(token))

    def _outcome(self, token: str) -> Principal | QuireError:
        try:
            return self._checked(token)
        except (jwt.PyJWTError, ValueError, TypeError):  # its text may show parts of the token
            return NotAuthenticated("the access token is not valid")

    def _checked(self, token: str) -> Principal:
        settings = self._settings
        key = self._key_of(token)
        if key is None:
            raise ValueError("unknown key")
        required = ["exp", "iss", settings.name_claim] + (["aud"] if settings.audience else [])
        options: Any = {
            "require": required, "verify_exp": False, "verify_nbf": False, "verify_iat": False,
            "verify_aud": bool(settings.audience), "verify_sub": False,
        }  # fmt: skip
        claims = jwt.decode(
            token, key, algorithms=settings.algorithms.split(), issuer=settings.issuer,
            audience=settings.audience or None, options=options,
        )  # fmt: skip
        now, expires_at, begins_at = self._clock.now_ms(), _time(claims["exp"]), _time(claims.get("nbf", 0))
        if expires_at + LEEWAY_MS <= now or begins_at - LEEWAY_MS > now:
            raise ValueError("expired, or not valid yet")
        name, roles = claims[settings.name_claim], claims.get(settings.roles_claim, [])
        roles = roles.split() if isinstance(roles, str) else roles
        if not is_name(name) or not isinstance(roles, list) or len(roles) > MOST_ROLES:
            raise ValueError("no name, or no roles")
        granted = frozenset(role for role in roles if is_name(role))
        return Principal(name, granted, Proof.JWT, expires_at + LEEWAY_MS, settings.issuer)

    def _key_of(self, token: str) -> jwt.PyJWK | None:
        try:
            id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return next(iter(self._keys.values()), None)  # it will be refused
        return self._keys.get(id) if id is not None or len(self._keys) != 1 else next(iter(self._keys.values()))

    def _read_keys(self) -> None:
        if self._is_reading:
            return
        self._is_reading, self._read_at = True, self._clock.monotonic()
        if not self._background.run(lambda: _read(self._settings.keys), self._take_keys):
            self._take_keys(QuireError("too much work waits"))

    def _take_keys(self, found: "dict[str | None, jwt.PyJWK] | Exception") -> None:
        self._is_reading = False
        failed = isinstance(found, Exception)
        if not isinstance(found, Exception):
            self._keys = found
        if failed is not self._is_failing:
            self._is_failing = failed
            what = f"cannot be read: {found}" if failed else "were read again"
            level = logging.ERROR if failed else logging.INFO
            event("jwt.keys", f"the keys of {self._settings.issuer} {what}", level, keys=self._settings.keys)
        waiting, self._waiting = self._waiting, []
        for token, done in waiting:
            done(self._outcome(token))


def _time(claim: object) -> int:
    if not isinstance(claim, int | float) or not 0 <= claim < LATEST:
        raise ValueError("no time")
    return int(claim * 1000)


def _read(source: str) -> "dict[str | None, jwt.PyJWK]":
    """On a thread: the keys of a file or a URL, by their ids."""
    parts = urlsplit(source)
    try:
        if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")):
            with urllib.request.urlopen(source, timeout=FETCH_LIMIT) as answer:  # noqa: S310 - a setting says which
                content = answer.read(MAX_SIZE)
        else:
            with Path(source).open("rb") as file:
                content = file.read(MAX_SIZE)
        keys = jwt.PyJWKSet.from_dict(msgspec.json.decode(content)).keys
        return {key.key_id: key for key in keys}
    except (OSError, ValueError, jwt.PyJWTError, TypeError, AttributeError) as error:
        raise QuireError(f"{source}: {error}") from error
