"""Destinations, messages and the links around them, for ``quire store``."""

from quire.errors import UnknownDestination, UnknownMessage
from quire.message import Message
from quire.store.base import Link, StoredDestination, StoreReader


def find_destination(reader: StoreReader, name: str) -> StoredDestination:
    """The destination of a name, ``orders`` or ``queue://orders``."""
    for destination in reader.destinations():
        if name in (destination.name, f"{destination.kind}://{destination.name}"):
            return destination
    raise UnknownDestination(f"the store has no destination {name}", name=name)


def find_message(reader: StoreReader, destination: StoredDestination, sequence: int) -> tuple[int, Message]:
    """A message and the lane it is in."""
    for lane in destination.lanes:
        for message in reader.load(lane, [sequence]):
            return lane, message
    raise UnknownMessage(f"{destination.name} has no message with sequence {sequence}", sequence=sequence)


def chain(reader: StoreReader, destination: StoredDestination, sequence: int, around: int) -> list[Link]:
    """The links around a record, in the order of the lane; the chain ends where a link leads to no record."""
    for lane in destination.lanes:
        middle = _link(reader, lane, sequence)
        if middle:
            before, after = [middle], [middle]
            while len(before) <= around and (link := _link(reader, lane, before[-1].previous)):
                before.append(link)
            while len(after) <= around and (link := _link(reader, lane, after[-1].next)):
                after.append(link)
            return before[:0:-1] + after
    raise UnknownMessage(f"{destination.name} has no message with sequence {sequence}", sequence=sequence)


def _link(reader: StoreReader, lane: int, sequence: int) -> Link | None:
    found = reader.links(lane, sequence, 1) if sequence else []
    return found[0] if found and found[0].sequence == sequence else None
