"""Hashes of passwords: argon2id, as OWASP advises; a check takes about 20 ms on one thread."""

import hashlib
import hmac
import secrets
from collections import OrderedDict

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from quire.errors import InvalidArgument

LONGEST = 1024
"""The longest password, in bytes."""

REMEMBERED = 10_000
"""Of how many users the broker remembers that their password was right."""

_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_NONE = _HASHER.hash(secrets.token_urlsafe(16))
"""What the password of an unknown user is compared with: it costs as much as that of a known one."""


def hashed(password: str) -> str:
    """The hash of a new password."""
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
    """Which passwords were right: a digest of each, with a key that only this process has, until the user changes."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[str, bytes] = OrderedDict()

    def knows(self, name: str, password_hash: str, password: str) -> bool:
        """Whether this password was right for this hash."""
        digest = self._digests.get(name)
        return digest is not None and hmac.compare_digest(digest, self._digest(password_hash, password))

    def remember(self, name: str, password_hash: str, password: str) -> None:
        """It was right."""
        self._digests[name] = self._digest(password_hash, password)
        self._digests.move_to_end(name)
        if len(self._digests) > REMEMBERED:
            self._digests.popitem(last=False)

    def _digest(self, password_hash: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{password_hash}\0{password}".encode(), hashlib.sha256)
