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
"""Of how many users the broker remembers that their password was right, and how many wrong ones it remembers."""

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
    """Which passwords were right, and which wrong: a digest of each, with a key that only this process has.

    A digest is about one hash, so a user that changes is looked at anew.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[str, bytes] = OrderedDict()  # by user
        self._wrong: OrderedDict[bytes, None] = OrderedDict()

    def known(self, name: str, password_hash: str, password: str) -> bool | None:
        """Whether this password was right for this hash, or wrong; None if neither is remembered."""
        digest = self._digest(name, password_hash, password)
        if (right := self._right.get(name)) is not None and hmac.compare_digest(right, digest):
            return True
        return False if digest in self._wrong else None

    def remember(self, name: str, password_hash: str, password: str, *, right: bool) -> None:
        """What its check has shown."""
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
