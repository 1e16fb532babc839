"""From the options to the partitions that are read."""

import difflib
from typing import NamedTuple

from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument, UnknownDestination
from quire.spark.lanes import Lanes
from quire.spark.option_kinds import Name
from quire.spark.options import Options
from quire.store.base import StoredDestination

LISTED = 10
"""How many destinations an error lists."""


class Partition(NamedTuple):
    """One lane of a destination: its index among the lanes there, and its id in the store."""

    destination: Destination
    number: int
    lane: int

    def __str__(self) -> str:
        return f"partition {self.number} of {self.destination}"


def select(lanes: Lanes, options: Options) -> list[Partition]:
    """The partitions that the options ask for, in the order of the store."""
    known = _known(lanes)
    if options.assign is not None:
        chosen = _assigned(known, options.assign)
    elif options.subscribe is not None:
        names = {_find(known, name).id for name in options.subscribe}
        chosen = [part for stored in known if stored.id in names for part in _partitions(stored)]
    else:
        pattern = options.subscribe_pattern
        assert pattern is not None
        chosen = [part for stored in known if pattern.is_of(_address(stored)) for part in _partitions(stored)]
    _check_offsets(options, chosen)
    return chosen


def named(lanes: Lanes) -> str:
    """The destinations that there are, for an error: the first few."""
    return _listed([str(_address(stored)) for stored in _known(lanes)])


def _listed(names: list[str]) -> str:
    return ", ".join([*names[:LISTED], *(["..."] if len(names) > LISTED else [])]) or "none at all"


def _known(lanes: Lanes) -> list[StoredDestination]:
    """The destinations; the store has things of the broker's own too."""
    return [found for found in lanes.destinations if found.kind in list(DestinationKind)]


def _address(stored: StoredDestination) -> Destination:
    return Destination(DestinationKind(stored.kind), stored.name)


def _partitions(stored: StoredDestination) -> list[Partition]:
    return [Partition(_address(stored), number, lane) for number, lane in enumerate(stored.lanes)]


def _assigned(known: list[StoredDestination], assigned: dict[Name, tuple[int, ...]]) -> list[Partition]:
    chosen: list[Partition] = []
    for name, numbers in assigned.items():
        partitions = _partitions(_find(known, name))
        if numbers[-1] >= len(partitions):
            text = f"assign names partition {numbers[-1]} of {name}, which has partitions 0 to {len(partitions) - 1}"
            raise InvalidArgument(text, option="assign")
        chosen += [partitions[number] for number in numbers]
    return list(dict.fromkeys(chosen))


def _find(known: list[StoredDestination], name: Name) -> StoredDestination:
    found = [stored for stored in known if name.is_of(_address(stored))]
    if len(found) > 1:
        addresses = " or ".join([str(_address(stored)) for stored in found])
        raise InvalidArgument(f"several destinations have the name {name}: write {addresses}", name=str(name))
    if not found:
        names = [str(_address(stored)) for stored in known]
        near = difflib.get_close_matches(str(name), [*names, *[stored.name for stored in known]], n=1)
        hint = f": did you mean {near[0]}?" if near else f"; it has {_listed(names)}"
        raise UnknownDestination(f"the store has no destination {name}{hint}", name=str(name))
    return found[0]


def _check_offsets(options: Options, chosen: list[Partition]) -> None:
    """Offsets and times of what is not read are a mistake in a name or a number."""
    given = {
        "startingOffsets": options.starting_offsets,
        "startingOffsetsByTimestamp": options.starting_offsets_by_timestamp,
        "endingOffsets": options.ending_offsets,
        "endingOffsetsByTimestamp": options.ending_offsets_by_timestamp,
    }
    for option, values in given.items():
        for name, numbers in values.named.items() if values else ():
            read = {part.number for part in chosen if name.is_of(part.destination)}
            for number in numbers.keys() - read:
                text = f"{option} names partition {number} of {name}, which is not read: see subscribe or assign"
                raise InvalidArgument(text, option=option)
