"""Users of the settings file; those that are made while the broker runs are read in the same way."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.errors import InvalidSettings
from quire.settings.key import Refused, entries_of, throw, unknown

ROLES = ("administrator", "operator", "monitor")
"""The roles that have a meaning of their own; others only stand in rules."""

MAX_NAME = 200
"""The longest name of a user or a role, in bytes."""

MOST_ROLES = 100
"""How many roles or certificates one user may have."""

_HASH = re.compile(r"\$argon2id\$v=\d{1,3}\$m=\d{1,7},t=\d{1,3},p=\d{1,3}\$[A-Za-z0-9+/]{8,100}\$[A-Za-z0-9+/]{16,200}")
_KEYS = ("name", "password_hash", "roles", "certificates", "disabled")


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        name: the login.
        password_hash: argon2id, as ``quire user hash`` prints it; empty for none.
        roles: what rules may name, and ``ROLES``.
        certificates: the subjects of client certificates that prove that one is this user.
        disabled: whether the broker refuses the user.
        in_file: whether it is in the settings file.
    """

    name: str
    password_hash: str = field(default="", repr=False)
    roles: frozenset[str] = frozenset()
    certificates: tuple[str, ...] = ()
    disabled: bool = False
    in_file: bool = field(default=True, compare=False)


def is_name(text: object) -> bool:
    """Whether a text can name a user or a role: it stands in rules, and before the colon of HTTP Basic."""
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text.encode()) <= MAX_NAME:
        return False
    return not text.startswith("$") and {" ", ",", ":", "*"}.isdisjoint(text)


def read_users(tables: object, origin: str, refused: Refused = throw, *, in_file: bool = True) -> tuple[User, ...]:
    """Read entries of ``[[users]]``; ``origin`` is ``file NAME``, and ``refused`` is told the faults."""
    names = set[str]()

    def read(table: Mapping[str, Any], number: int) -> User:
        place = f"{origin}, user {number}"
        user = read_user(table, place, in_file=in_file)
        if user.name in names:
            raise _wrong("name", place, f"another user is named {user.name}")
        names.add(user.name)
        return user

    return tuple(entries_of(tables, "users", origin, read, refused))


def read_user(table: Mapping[str, Any], origin: str, *, in_file: bool = True) -> User:
    """Read one entry."""
    for key in table:
        if key not in _KEYS:
            raise unknown(key, origin, _KEYS)
    name = table.get("name")
    if not is_name(name):
        text = f'name = "NAME" of 1 to {MAX_NAME} bytes, without blanks, `,`, `:`, `*` and a `$` in front'
        raise _wrong("name", origin, f"a user needs {text}")
    assert isinstance(name, str)
    password_hash, disabled = table.get("password_hash", ""), table.get("disabled", False)
    if not isinstance(password_hash, str) or (password_hash and not _HASH.fullmatch(password_hash)):
        raise _wrong("password_hash", origin, "it is not a hash: `quire user hash` makes one of a password")
    if not isinstance(disabled, bool):
        raise _wrong("disabled", origin, "write true or false")
    roles = _texts(table, "roles", origin)
    for role in roles:
        if not is_name(role):
            raise _wrong("roles", origin, f"{role[:60]!r} is not a name of a role")
    return User(name, password_hash, frozenset(roles), _texts(table, "certificates", origin), disabled, in_file)


def _texts(table: Mapping[str, Any], key: str, origin: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or len(value) > MOST_ROLES or not all(isinstance(part, str) for part in value):
        raise _wrong(key, origin, f"write a list of at most {MOST_ROLES} texts")
    return tuple(value)


def _wrong(key: str, origin: str, text: str) -> InvalidSettings:
    """The error names no value: it might be a password."""
    return InvalidSettings(f"{key} ({origin}) is not allowed: {text}", key=f"users.{key}", origin=origin)
