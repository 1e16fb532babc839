"""Access rules of the settings file; those that are made while the broker runs are read in the same way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from quire.destination import DestinationKind, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings
from quire.settings.key import Refused, entries_of, shown, throw, unknown
from quire.settings.users import is_name

_KEYS = ("subject", "allow", "deny", "destination")


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
        if key not in _KEYS:
            raise unknown(key, origin, _KEYS)
    subject = table.get("subject")
    if not isinstance(subject, str) or not _is_subject(subject):
        raise _wrong("subject", subject, origin, "write user:NAME, role:NAME, or * for every user")
    effects = [effect for effect in ("allow", "deny") if effect in table]
    if len(effects) != 1:
        raise _wrong("allow", dict(table), origin, "write either allow = [ACTIONS] or deny = [ACTIONS]")
    names = table[effects[0]]
    if not isinstance(names, list) or not names or not all(name in ACTIONS for name in names):
        raise _wrong(effects[0], names, origin, f"write a list of actions: {', '.join(ACTIONS)}")
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
        raise _wrong("destination", written, origin, str(error)) from error


def _wrong(key: str, value: object, origin: str, text: str) -> InvalidSettings:
    written, data = shown(value)
    name = f"rules.{key}"
    return InvalidSettings(f"{key} = {written} ({origin}) is not allowed: {text}", key=name, value=data, origin=origin)
