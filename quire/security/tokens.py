"""Bearer tokens: ``qt_ID_SECRET``. The broker keeps a digest of the secret only."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from quire.errors import InvalidSettings

_TOKEN = re.compile(r"qt_([0-9a-z]{1,20})_([A-Za-z0-9_-]{43})")

LOCAL = "local"
"""The id of the token that the command line on the broker's machine reads from a file."""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that a user has made.

    Attributes:
        id: what commands call it.
        owner: the user whose rights it gives.
        digest: SHA-256 of the secret, in hexadecimal.
        expires_at: when it ends, in milliseconds since the epoch.
        roles: the only roles of the owner that it gives; None for all.
        created_at: when it was made.
        text: what it is for.
    """

    id: str
    owner: str
    digest: str
    expires_at: int
    roles: tuple[str, ...] | None = None
    created_at: int = 0
    text: str = ""

    def __repr__(self) -> str:
        return f"Token({self.id!r}, {self.owner!r})"

    def is_secret(self, secret: str) -> bool:
        """Whether a secret is that of this token."""
        return hmac.compare_digest(self.digest, _digest(secret))


def make_token(
    owner: str, now_ms: int, expires_at: int, roles: tuple[str, ...] | None = None, text: str = "", id: str = ""
) -> tuple[Token, str]:
    """A new token, and what the user gets: it is nowhere else."""
    id, secret = id or secrets.token_hex(6), secrets.token_urlsafe(32)
    return Token(id, owner, _digest(secret), expires_at, roles, now_ms, text), f"qt_{id}_{secret}"


def same_token(token: Token, text: str) -> Token:
    """A token with what users get for another one: several processes then take the same."""
    found = split_token(text)
    assert found is not None
    return msgspec.structs.replace(token, digest=_digest(found[1]))


def split_token(text: str) -> tuple[str, str] | None:
    """The id and the secret of a token; None if the text is none."""
    found = _TOKEN.fullmatch(text)
    return (found[1], found[2]) if found else None


def read_token(table: Mapping[str, Any], origin: str) -> Token:
    """A token as the file has it."""
    try:
        return msgspec.convert(table, Token)
    except msgspec.ValidationError as error:
        raise InvalidSettings(f"a token ({origin}) is damaged: {error}", origin=origin) from error


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
