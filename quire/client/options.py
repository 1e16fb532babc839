"""Options as ActiveMQ writes them in URLs and destination names, read into dataclasses."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from quire.errors import InvalidArgument

T = TypeVar("T")


def read_options(kind: type[T], options: Mapping[str, str], prefix: str = "", ignored: Collection[str] = ()) -> T:
    """Make a dataclass from options; a field ``a_b`` is the option ``aB``, and a nested dataclass has dotted names.

    Args:
        kind: the dataclass; what is not given has its default.
        options: the values by name, without the prefix.
        prefix: what stood before each name, for the texts of errors.
        ignored: names that are accepted and mean nothing here.

    Raises:
        InvalidArgument: an option is unknown (``data`` has the ``nearest`` names), or its value is invalid.
    """
    known = dict(_known(kind))
    given: dict[str, Any] = {}
    for name, text in options.items():
        if name in known:
            _put(given, known[name][0], _value(known[name][1], text, prefix + name))
        elif name not in ignored:
            raise unknown_option(prefix + name, [prefix + other for other in (*known, *ignored)])
    return _made(kind, given)


def unknown_option(name: str, known: Collection[str]) -> InvalidArgument:
    """The error for an option that is not there; its text has the nearest names."""
    nearest = difflib.get_close_matches(name, known, 3, 0.5)
    advice = f"the nearest are {', '.join(nearest)}" if nearest else f"there are {', '.join(sorted(known))}"
    return InvalidArgument(f"the option {name[:100]!r} is unknown: {advice}", argument=name[:100], nearest=nearest)


def _known(kind: type[Any], path: tuple[str, ...] = (), prefix: str = "") -> Iterator[tuple[str, tuple[Any, type]]]:
    hints = get_type_hints(kind)
    for item in fields(kind):
        name, hint = prefix + _option_name(item), hints[item.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _known(hint, (*path, item.name), name + ".")
        elif hint in (bool, int, float, str):
            yield name, ((*path, item.name), hint)


def _option_name(item: Field[Any]) -> str:
    first, *rest = item.name.split("_")
    return str(item.metadata.get("option", first + "".join(word.capitalize() for word in rest)))


def _value(hint: type, text: str, name: str) -> bool | int | float | str:
    try:
        if hint is bool:
            return {"true": True, "false": False}[text.lower()]
        return int(text) if hint is int else float(text) if hint is float else text
    except (KeyError, ValueError) as error:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[hint]
        raise InvalidArgument(f"{name}={text[:60]!r}: give {wanted}", argument=name, value=text[:60]) from error


def _put(given: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for part in path[:-1]:
        given = given.setdefault(part, {})
    given[path[-1]] = value


def _made(kind: type[T], given: dict[str, Any]) -> T:
    hints = get_type_hints(kind)
    return kind(**{name: _made(hints[name], value) if is_dataclass(hints[name]) else value
                   for name, value in given.items()})  # fmt: skip
