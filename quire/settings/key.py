"""What a setting is: its declaration, and the value it has from somewhere."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields
from typing import Any, NamedTuple, TypeVar

from quire.errors import InvalidSettings, QuireError
from quire.settings.kinds import Kind

Entry = TypeVar("Entry")
Refused = Callable[[QuireError], None]
"""Is told a fault of the settings: raises it, or keeps it and has the reading go on."""

MOST_SHOWN = 1000
"""How many characters of a value an error shows."""


class Setting(NamedTuple):
    """The value of a setting; its origin is a text such as ``default``, ``file NAME`` or ``environment NAME``."""

    key: str
    value: Any
    origin: str


class Key(NamedTuple):
    """One setting's declaration."""

    name: str  # ``section.key``, or only ``key`` at the top of the file
    default: Any  # its value if it is not set
    kind: Kind  # what it may be
    text: str  # what it is for

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "QUIRE_" + self.name.replace(".", "__").upper()

    def read(self, value: object, origin: str) -> Setting:
        """Read a value; ``InvalidSettings`` has ``key``, ``value`` and ``origin``."""
        try:
            return Setting(self.name, self.kind.parse(value), origin)
        except (ValueError, ArithmeticError) as error:
            text, data = shown(value)
            raise InvalidSettings(
                f"{self.name} = {text} ({origin}) is not allowed: {self.kind.allowed}",
                key=self.name, value=data, origin=origin,
            ) from error  # fmt: skip


def shown(value: object) -> tuple[str, object]:
    """A value as an error shows it, and as its data has it: Python writes no numbers of thousands of digits."""
    try:
        return repr(value)[:MOST_SHOWN], value
    except ValueError:
        text = hex(value)[:MOST_SHOWN] if isinstance(value, int) else "a number of too many digits"
        return text, text


def declare(default: Any, kind: Kind, text: str) -> Any:
    """A field of a section's dataclass: a setting with its default, what it may be, and what it is for."""
    return field(default=default, metadata={"kind": kind, "text": text})


def keys_of(section: Any, prefix: str = "") -> Iterator[Key]:
    """The settings that a dataclass declares, in its order; ``prefix`` is its section with a dot."""
    for part in fields(section):
        if "kind" in part.metadata:
            yield Key(prefix + part.name, part.default, part.metadata["kind"], part.metadata["text"])


def unknown(name: str, origin: str, known: Iterable[str]) -> InvalidSettings:
    """The error for an unknown key, with the known one that may have been meant."""
    names = list(known)
    lasts = {key.rpartition(".")[2]: key for key in reversed(names)}
    near = difflib.get_close_matches(name, names, n=1) or [
        lasts[last] for last in difflib.get_close_matches(name.rpartition(".")[2], lasts, n=1)
    ]
    hint = f"did you mean {near[0]}?" if near else "`quire config init -` prints all settings"
    return InvalidSettings(f"{name} ({origin}) is not a setting; {hint}", key=name, origin=origin)


def throw(error: QuireError) -> None:
    """Raise an error: what happens to a fault unless a caller gathers all of them."""
    raise error


def entries_of(
    value: object, name: str, origin: str, read: Callable[[dict[str, Any], int], Entry], refused: Refused = throw
) -> list[Entry]:
    """Read an array of tables.

    Args:
        value: what stands in the file.
        name: of the array.
        origin: ``file NAME``.
        read: reads an entry, with its number, from 1 on; it may raise ``InvalidSettings``.
        refused: called with each fault; its entry is left out.
    """
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        text = f"{name} ({origin}) have another form: begin each entry with [[{name}]]"
        refused(InvalidSettings(text, key=name, origin=origin))
        return []
    found = []
    for number, table in enumerate(value, 1):
        try:
            found.append(read(table, number))
        except InvalidSettings as error:
            refused(error)
    return found
