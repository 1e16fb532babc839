"""Users and access rules of the settings file; those that are made while the broker runs are read in the same way."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from quire.destination import DestinationKind, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidSettings
from quire.options import Kind, text_of
from quire.settings.key import FLAG, Refused, entries_of, not_allowed, read_table, throw

ROLES = ("administrator", "operator", "monitor")
"""The roles that have a meaning of their own; others only stand in rules."""

MAX_NAME = 200  # the longest name of a user or a role, in bytes
MOST_ROLES = 100  # how many roles or certificates one user may have

_HASH = re.compile(r"\$argon2id\$v=\d{1,3}\$m=\d{1,7},t=\d{1,3},p=\d{1,3}\$[A-Za-z0-9+/]{8,100}\$[A-Za-z0-9+/]{16,200}")


@dataclass(frozen=True, slots=True)
class User:
    """A user."""

    name: str  # the login
    password_hash: str = field(default="", repr=False)  # argon2id, as ``quire user hash`` prints it; empty for none
    roles: frozenset[str] = frozenset()  # what rules may name, and ``ROLES``
    certificates: tuple[str, ...] = ()  # the subjects of client certificates that prove that one is this user
    disabled: bool = False  # whether the broker refuses it
    in_file: bool = field(default=True, compare=False)  # whether it is in the settings file


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
            text = f"name ({place}) is not allowed: another user is named {user.name}"
            raise InvalidSettings(text, key="users.name", origin=place)
        names.add(user.name)
        return user

    return tuple(entries_of(tables, "users", origin, read, refused))


def _hash(value: object) -> str:
    if text_of(value) and not _HASH.fullmatch(text_of(value)):
        raise ValueError(value)
    return text_of(value)


def _name(value: object) -> str:
    if not is_name(value):
        raise ValueError(value)
    return text_of(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_ROLES:
        raise ValueError(value)
    return tuple([text_of(part) for part in value])


_USER = {
    "name": Kind(
        f'a user needs name = "NAME" of 1 to {MAX_NAME} bytes, without blanks, `,`, `:`, `*` and a `$` in front', _name
    ),
    "password_hash": Kind("it is not a hash: `quire user hash` makes one of a password", _hash),
    "roles": Kind(
        f"write a list of at most {MOST_ROLES} names of roles",
        lambda value: frozenset([_name(role) for role in _texts(value)]),
    ),
    "certificates": Kind(f"write a list of at most {MOST_ROLES} texts", _texts),
    "disabled": FLAG,
}


def read_user(table: Mapping[str, Any], origin: str, *, in_file: bool = True) -> User:
    """Read one entry. The error names no value: it might be a password."""
    try:
        return User(**read_table(_USER, {"name": None} | dict(table), origin), in_file=in_file)
    except InvalidSettings as error:
        key = error.data["key"]
        if key not in _USER:
            raise
        text = f"{key} ({origin}) is not allowed: {_USER[key].allowed}"
        raise InvalidSettings(text, key=f"users.{key}", origin=origin) from None


class Action(StrEnum):
    """What one may do with a destination."""

    READ = "read"  # consume, browse, subscribe
    WRITE = "write"  # send
    CREATE = "create"  # make it by using it
    MANAGE = "manage"  # make, pause, purge, move, delete it


ACTIONS = tuple(str(action) for action in Action)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    id: str  # what commands call it
    subject: str  # ``user:NAME``, ``role:NAME``, or ``*`` for every user
    allow: bool  # or deny
    actions: frozenset[Action]
    kind: DestinationKind | None  # None for every kind
    pattern: Pattern
    everything: bool = field(default=False, compare=False)  # whether a wildcard in front matches protected names too
    in_file: bool = field(default=True, compare=False)  # whether it is in the settings file

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


def _subject(value: object) -> str:
    kind, colon, name = text_of(value).partition(":")
    if value != "*" and not (colon and kind in ("user", "role") and is_name(name)):
        raise ValueError(value)
    return text_of(value)


def _actions(value: object) -> frozenset[Action]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    return frozenset([Action(name) for name in value])


def _destination(value: object) -> tuple[DestinationKind | None, Pattern]:
    kind, text = split_prefix(text_of(value))
    return kind, Pattern(text)


_ACTIONS = Kind(f"write a list of actions: {', '.join(ACTIONS)}", _actions)
_RULE = {
    "subject": Kind("write user:NAME, role:NAME, or * for every user", _subject),
    "allow": _ACTIONS,
    "deny": _ACTIONS,
    "destination": Kind('a rule needs destination = "PATTERN"', _destination),
}


def read_rule(table: Mapping[str, Any], id: str, origin: str, *, in_file: bool = True) -> Rule:
    """Read one entry: ``subject``, ``allow`` or ``deny`` with a list of actions, ``destination``."""
    found = read_table(_RULE, {"subject": None, "destination": None} | dict(table), origin, "rules.")
    if ("allow" in found) == ("deny" in found):
        text = "write either allow = [ACTIONS] or deny = [ACTIONS]"
        raise not_allowed("allow", dict(table), origin, text, "rules.allow")
    actions = found["allow" if "allow" in found else "deny"]
    kind, pattern = found["destination"]
    return Rule(id, found["subject"], "allow" in found, actions, kind, pattern, in_file=in_file)
