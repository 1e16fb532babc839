"""Users and access rules of the settings file; those that are made while the broker runs are read in the same way."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from quire.destination import DestinationKind, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings
from quire.settings.key import Refused, entries_of, shown, throw, unknown

ROLES = ("administrator", "operator", "monitor")
"""The roles that have a meaning of their own; others only stand in rules."""

MAX_NAME = 200
"""The longest name of a user or a role, in bytes."""

MOST_ROLES = 100
"""How many roles or certificates one user may have."""

_HASH = re.compile(r"\$argon2id\$v=\d{1,3}\$m=\d{1,7},t=\d{1,3},p=\d{1,3}\$[A-Za-z0-9+/]{8,100}\$[A-Za-z0-9+/]{16,200}")
_USER_KEYS = ("name", "password_hash", "roles", "certificates", "disabled")


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
            raise _wrong_user("name", place, f"another user is named {user.name}")
        names.add(user.name)
        return user

    return tuple(entries_of(tables, "users", origin, read, refused))


def read_user(table: Mapping[str, Any], origin: str, *, in_file: bool = True) -> User:
    """Read one entry."""
    for key in table:
        if key not in _USER_KEYS:
            raise unknown(key, origin, _USER_KEYS)
    name = table.get("name")
    if not is_name(name):
        text = f'name = "NAME" of 1 to {MAX_NAME} bytes, without blanks, `,`, `:`, `*` and a `$` in front'
        raise _wrong_user("name", origin, f"a user needs {text}")
    assert isinstance(name, str)
    password_hash, disabled = table.get("password_hash", ""), table.get("disabled", False)
    if not isinstance(password_hash, str) or (password_hash and not _HASH.fullmatch(password_hash)):
        raise _wrong_user("password_hash", origin, "it is not a hash: `quire user hash` makes one of a password")
    if not isinstance(disabled, bool):
        raise _wrong_user("disabled", origin, "write true or false")
    roles = _texts(table, "roles", origin)
    for role in roles:
        if not is_name(role):
            raise _wrong_user("roles", origin, f"{role[:60]!r} is not a name of a role")
    return User(name, password_hash, frozenset(roles), _texts(table, "certificates", origin), disabled, in_file)


def _texts(table: Mapping[str, Any], key: str, origin: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or len(value) > MOST_ROLES or not all(isinstance(part, str) for part in value):
        raise _wrong_user(key, origin, f"write a list of at most {MOST_ROLES} texts")
    return tuple(value)


def _wrong_user(key: str, origin: str, text: str) -> InvalidSettings:
    """The error names no value: it might be a password."""
    return InvalidSettings(f"{key} ({origin}) is not allowed: {text}", key=f"users.{key}", origin=origin)


_RULE_KEYS = ("subject", "allow", "deny", "destination")


class Action(StrEnum):
    """What one may do with a destination."""

    READ = "read"  # consume, browse, subscribe
    WRITE = "write"  # send
    CREATE = "create"  # make it by using it
    MANAGE = "manage"  # make, pause, purge, move, delete it


ACTIONS = tuple(str(action) for action in Action)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        id: what commands call it.
        subject: ``user:NAME``, ``role:NAME``, or ``*`` for every user.
        allow: whether it allows or denies.
        actions: what it is about.
        kind: the kind of destination, None for every kind.
        pattern: the names.
        everything: whether a pattern that begins with a wildcard matches protected names too.
        in_file: whether it is in the settings file.
    """

    id: str
    subject: str
    allow: bool
    actions: frozenset[Action]
    kind: DestinationKind | None
    pattern: Pattern
    everything: bool = field(default=False, compare=False)
    in_file: bool = field(default=True, compare=False)

    def __str__(self) -> str:
        return f"{self.id}: {'allow' if self.allow else 'deny'} {self.subject} {self.listed} on {self.destination}"

    @property
    def listed(self) -> str:
        """Its actions, in their usual order."""
        return ",".join(action for action in Action if action in self.actions)

    @property
    def destination(self) -> str:
        """Its pattern as it is written, with the kind in front."""
        return f"{self.kind}://{self.pattern.text}" if self.kind else self.pattern.text


def read_rules(tables: object, origin: str, refused: Refused = throw) -> tuple[Rule, ...]:
    """Read the entries of ``[[rules]]``; ``origin`` is ``file NAME``, and ``refused`` is told the faults."""

    def read(table: Mapping[str, Any], number: int) -> Rule:
        return read_rule(table, f"file-{number}", f"{origin}, rule {number}")

    return tuple(entries_of(tables, "rules", origin, read, refused))


def read_rule(table: Mapping[str, Any], id: str, origin: str, *, in_file: bool = True) -> Rule:
    """Read one entry: ``subject``, ``allow`` or ``deny`` with a list of actions, ``destination``."""
    for key in table:
        if key not in _RULE_KEYS:
            raise unknown(key, origin, _RULE_KEYS)
    subject = table.get("subject")
    if not isinstance(subject, str) or not _is_subject(subject):
        raise _wrong_rule("subject", subject, origin, "write user:NAME, role:NAME, or * for every user")
    effects = [effect for effect in ("allow", "deny") if effect in table]
    if len(effects) != 1:
        raise _wrong_rule("allow", dict(table), origin, "write either allow = [ACTIONS] or deny = [ACTIONS]")
    names = table[effects[0]]
    if not isinstance(names, list) or not names or not all(name in ACTIONS for name in names):
        raise _wrong_rule(effects[0], names, origin, f"write a list of actions: {', '.join(ACTIONS)}")
    kind, pattern = _destination(table.get("destination"), origin)
    actions = frozenset(Action(name) for name in names)
    return Rule(id, subject, effects[0] == "allow", actions, kind, pattern, in_file=in_file)


def _is_subject(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return text == "*" or (bool(colon) and kind in ("user", "role") and is_name(name))


def _destination(written: object, origin: str) -> tuple[DestinationKind | None, Pattern]:
    try:
        if not isinstance(written, str):
            raise InvalidDestination('a rule needs destination = "PATTERN"')
        kind, text = split_prefix(written)
        return kind, Pattern(text)
    except InvalidDestination as error:
        raise _wrong_rule("destination", written, origin, str(error)) from error


def _wrong_rule(key: str, value: object, origin: str, text: str) -> InvalidSettings:
    written, data = shown(value)
    name = f"rules.{key}"
    return InvalidSettings(f"{key} = {written} ({origin}) is not allowed: {text}", key=name, value=data, origin=origin)
