"""Composite destinations: what is sent to one goes to others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.errors import InvalidDestination, InvalidSettings
from quire.settings.key import Refused, entries_of, shown, throw, unknown
from quire.settings.kinds import SWITCH

_KEYS = ("queue", "topic", "forward_to", "forward_only")


@dataclass(frozen=True, slots=True)
class Forward:
    """One place to which a composite forwards."""

    destination: str  # with its prefix: ``queue://orders``
    selector: str = ""  # only messages that this selector matches go there; empty for all


@dataclass(frozen=True, slots=True)
class Composite:
    """An entry of ``[[composites]]`` (ActiveMQ's ``compositeQueue`` and ``compositeTopic``)."""

    destination: Destination  # where producers send
    forward_to: tuple[Forward, ...]  # where copies of their messages go
    forward_only: bool = True  # whether nothing stays in the destination itself


def read_composites(tables: object, origin: str, refused: Refused = throw) -> tuple[Composite, ...]:
    """Read the entries of ``[[composites]]``; ``origin`` is ``file NAME``, and ``refused`` is told the faults."""
    taken = set[Destination]()

    def read(table: Mapping[str, Any], number: int) -> Composite:
        place = f"{origin}, composite {number}"
        composite = _composite(table, place)
        if composite.destination in taken:
            raise _wrong("composites", str(composite.destination), place, "another composite destination has this name")
        taken.add(composite.destination)
        return composite

    return tuple(entries_of(tables, "composites", origin, read, refused))


def _composite(table: Mapping[str, Any], origin: str) -> Composite:
    for key in table:
        if key not in _KEYS:
            raise unknown(key, origin, _KEYS)
    kinds = [kind for kind in (DestinationKind.QUEUE, DestinationKind.TOPIC) if kind in table]
    if len(kinds) != 1:
        raise _wrong("composites", dict(table), origin, 'write either queue = "NAME" or topic = "NAME"')
    try:
        destination = checked(kinds[0], _text(table[kinds[0]]))
    except (InvalidDestination, ValueError) as error:
        raise _wrong(kinds[0], table[kinds[0]], origin, str(error)) from error
    only = table.get("forward_only", True)
    if not isinstance(only, bool):
        raise _wrong("forward_only", only, origin, SWITCH.allowed)
    return Composite(destination, _forwards(table.get("forward_to"), destination, origin), only)


def _forwards(items: object, composite: Destination, origin: str) -> tuple[Forward, ...]:
    found: dict[str, Forward] = {}
    for item in items if isinstance(items, list) else ():
        forward = _forward(item, origin)
        if forward.destination in (*found, str(composite)):
            raise _wrong(
                "forward_to", item, origin, "a composite destination forwards to other destinations, to each one once"
            )
        found[forward.destination] = forward
    if not found:
        raise _wrong("forward_to", items, origin, 'a list such as ["queue://A", {destination = "topic://B"}]')
    return tuple(found.values())


def _forward(item: object, origin: str) -> Forward:
    written = item if isinstance(item, dict) else {"destination": item}
    try:
        if not {"destination"} <= written.keys() <= {"destination", "selector"}:
            raise ValueError("write destination, and selector to forward only some messages")
        kind, name = split_prefix(_text(written["destination"]))
        destination = checked(kind or DestinationKind.QUEUE, name)
        return Forward(str(destination), _text(written.get("selector", "")))
    except (InvalidDestination, ValueError) as error:
        raise _wrong("forward_to", item, origin, str(error)) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("write a text")
    return value


def _wrong(key: str, value: object, origin: str, text: str) -> InvalidSettings:
    written, data = shown(value)
    return InvalidSettings(f"{key} = {written} ({origin}) is not allowed: {text}", key=key, value=data, origin=origin)
