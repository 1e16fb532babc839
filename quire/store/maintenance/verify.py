"""Verify: checks every lane through the SPI alone, in bounded memory, so that it works on every store.

Beside it, what shows a single message and the links around it.
"""

import zlib
from collections.abc import Callable, Iterator
from itertools import chain as chained
from typing import NamedTuple

from quire.errors import StoreCorrupt, UnknownDestination, UnknownMessage
from quire.message import Message
from quire.store.base import LaneState, Link, Store, StoredDestination, StoreReader, in_steps
from quire.store.maintenance.base import Finding, Problem, StoreMaintenance

STEP = 10_000  # how many links are read at once
GROUP_BYTES = 4 * 1024 * 1024  # how many bytes of records are read at once, unless a single one is larger
Progress = Callable[[int], None]


def verify(
    store: Store, maintenance: StoreMaintenance | None = None, progress: Progress = lambda records: None
) -> Iterator[Finding]:
    """Find everything that is wrong with an open store, a lane after the other; a broker may be running.

    Each lane is read in a snapshot of its own. ``maintenance`` finds what cannot be seen through the SPI; ``progress``
    is called with the number of records checked since its last call.
    """
    before = set(maintenance.lanes()) if maintenance else set()
    owners = {lane: f"{owner.kind}://{owner.name}" for owner in store.destinations() for lane in owner.lanes}
    after = set(maintenance.lanes()) if maintenance else set()
    # A destination that is created or removed in between makes no stray.
    strays = sorted((before & after) - owners.keys())
    for lane in [*owners, *strays]:
        with store.snapshot() as reader:
            if lane not in owners:
                yield Finding(Problem.STRAY_LANE, lane, 0, f"lane {lane} belongs to no destination")
            found = maintenance.inspect(reader, lane) if maintenance else iter(())
            readable = True
            for finding in found:
                readable = readable and finding.problem is not Problem.UNREADABLE
                yield finding._replace(destination=owners.get(lane, ""))
            if readable:
                for finding in _LaneCheck(reader, lane, progress).run():
                    yield finding._replace(destination=owners.get(lane, ""))
    if maintenance:
        with store.snapshot() as reader:
            for finding in maintenance.inspect_indexes(reader):
                yield finding._replace(destination=owners.get(finding.lane, ""))


class _Direction(NamedTuple):
    """One way through a lane."""

    pointer: Callable[[Link], int]
    name: str
    broken: Problem
    end: str
    wrong_end: Problem


_FORWARD = _Direction(lambda link: link.next, "next", Problem.BROKEN_NEXT, "head", Problem.WRONG_HEAD)
_BACKWARD = _Direction(lambda link: link.previous, "previous", Problem.BROKEN_PREVIOUS, "tail", Problem.WRONG_TAIL)


class _LaneCheck:
    def __init__(self, reader: StoreReader, lane: int, progress: Progress) -> None:
        self._reader = reader
        self._lane = lane
        self._progress = progress
        self._steps: list[int] = []
        self._count = self._bytes = self._last = 0

    def run(self) -> Iterator[Finding]:
        state = self._reader.lane_state(self._lane)
        yield from self._follow(chained.from_iterable(self._forward()), state.head, _FORWARD)
        yield from self._follow(chained.from_iterable(self._backward()), state.tail, _BACKWARD)
        yield from self._totals(state)
        for start in self._steps:
            yield from self._contents(self._reader.links(self._lane, start, STEP))
        yield from self._deliveries()

    def _forward(self) -> Iterator[list[Link]]:
        start = 0
        while links := self._reader.links(self._lane, start, STEP):
            self._steps.append(links[0].sequence)
            self._count += len(links)
            self._bytes += sum([link.size for link in links])
            self._last = links[-1].sequence
            yield links
            start = self._last + 1

    def _backward(self) -> Iterator[list[Link]]:
        for start in reversed(self._steps):
            yield self._reader.links(self._lane, start, STEP)[::-1]

    def _follow(self, links: Iterator[Link], expected: int, way: _Direction) -> Iterator[Finding]:
        """Follow the pointers of one direction; after a break continue with the next record."""
        last = 0
        for link in links:
            if link.sequence != expected:
                yield self._break(last, expected, link.sequence, way)
            expected, last = way.pointer(link), link.sequence
        if expected:
            yield self._break(last, expected, 0, way)

    def _break(self, last: int, expected: int, found: int, way: _Direction) -> Finding:
        problem, place = (way.broken, f"record {last}: {way.name}") if last else (way.wrong_end, way.end)
        return self._finding(problem, last, f"{place} is {expected}; by the records it is {found or 'none'}")

    def _totals(self, state: LaneState) -> Iterator[Finding]:
        if state.count != self._count:
            yield self._finding(Problem.WRONG_COUNT, 0, f"count is {state.count}, but there are {self._count} records")
        if state.bytes != self._bytes:
            yield self._finding(Problem.WRONG_BYTES, 0, f"bytes are {state.bytes}, but the records have {self._bytes}")
        if state.next_sequence <= self._last:
            text = f"next sequence is {state.next_sequence}, but {self._last} is used"
            yield self._finding(Problem.WRONG_NEXT_SEQUENCE, 0, text)

    def _contents(self, links: list[Link]) -> Iterator[Finding]:
        for group in in_steps(links, [link.size for link in links], GROUP_BYTES):
            for link, message in zip(group, self._load(group), strict=True):
                if isinstance(message, StoreCorrupt):
                    yield self._finding(Problem.DAMAGED_RECORD, link.sequence, str(message))
                elif message is None:
                    text = f"record {link.sequence} is linked, but missing"
                    yield self._finding(Problem.MISSING_RECORD, link.sequence, text)
                elif (message.size, zlib.crc32(message.content)) != (link.size, link.checksum):
                    text = f"the link of record {link.sequence} has another size or checksum than the record"
                    yield self._finding(Problem.WRONG_LINK, link.sequence, text)
            self._progress(len(group))

    def _load(self, links: list[Link]) -> list[Message | StoreCorrupt | None]:
        """Read a group: for each link its record, None if it is not there, or why it cannot be read."""
        try:
            messages = self._reader.load(self._lane, [link.sequence for link in links])
        except StoreCorrupt as error:
            return [error] if len(links) == 1 else [self._load([link])[0] for link in links]
        found = {message.sequence: message for message in messages}
        return [found.get(link.sequence) for link in links]

    def _deliveries(self) -> Iterator[Finding]:
        start = 0
        while states := self._reader.deliveries(self._lane, start, STEP):
            for sequence, _ in states:
                if [link.sequence for link in self._reader.links(self._lane, sequence, 1)] != [sequence]:
                    text = f"the store has a delivery state of record {sequence}, which is missing"
                    yield self._finding(Problem.STRAY_DELIVERY, sequence, text)
            start = states[-1][0] + 1

    def _finding(self, problem: Problem, sequence: int, text: str) -> Finding:
        return Finding(problem, self._lane, sequence, text)


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
