"""What the store has of each message for a group, read without the broker."""

from collections import Counter

import msgspec

from quire.broker.queues.shared_lane import LaneRecords, read_finished
from quire.broker.streams.groups.group_definition import DEFINITIONS, GroupDefinition, partition_keys, prefix_of
from quire.broker.streams.groups.retries import origin_of
from quire.cursors.ack_set import AckSet
from quire.store.base import Delivery, LaneState, Store, walk_marks
from tests.simulation.checks import ALL
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.log import Record
from tests.simulation.streams.work import Place, State


class Truth:
    """What the store has of one group."""

    def __init__(self, store: Store, number: int, definition: GroupDefinition) -> None:
        self.finished: list[AckSet] = []
        self.links: dict[tuple[int, int], list[Delivery]] = {}
        self.is_purging = False
        self._name = definition.name
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        destinations = store.destinations()
        lanes = next(d.lanes for d in destinations if (d.kind, d.name) == ("stream", definition.stream))
        for partition, lane in enumerate(lanes):
            keys = partition_keys(number, partition)
            with store.snapshot() as reader:
                is_known = reader.mark(keys.progress) is not None
                self.finished.append(read_finished(reader, keys) if is_known else AckSet())
            records = LaneRecords(store, lane, AckSet(), keys, LaneState())
            for offset, state in records.deliveries(lane, 0, ALL):
                self._deliveries[partition, offset] = state
        self._read_links(store, number, definition, lanes)
        letters = next((d.lanes[0] for d in destinations if d.name == f"%DLQ%{definition.name}"), 0)
        bodies = [message.body for message in store.page(letters, 0, ALL, ALL).messages] if letters else []
        self._letters = Counter([body[: body.index(b";")].decode() for body in bodies])

    def _read_links(self, store: Store, number: int, definition: GroupDefinition, lanes: tuple[int, ...]) -> None:
        if definition.retry:
            purge = store.mark(f"{prefix_of(number)}purge")  # these are to go, whatever happens
            purged: dict[int, int] = {} if purge is None else msgspec.msgpack.decode(purge, type=dict[int, int])
            self.is_purging = bool(purged)
            for link in store.page(definition.retry, 0, ALL, ALL).messages:
                origin = origin_of(definition.retry, link)
                if link.sequence <= purged.get(origin.lane, 0):
                    continue
                place = (lanes.index(origin.lane), origin.sequence)
                state = Delivery(link.deliveries, link.failures, link.not_before, "")
                self.links.setdefault(place, []).append(state)

    def state_of(self, record: Record) -> State:
        """Where a message stands."""
        place, letters = record.place, self._letters[record.sent.name]
        is_finished = record.partition < len(self.finished) and record.offset in self.finished[record.partition]
        links, delivery = self.links.get(place, []), self._deliveries.get(place)
        if len(links) > 1 or (links and not is_finished) or (delivery and is_finished):
            text = f"{record} is finished: {is_finished}, has the retries {links} and the state {delivery}"
            raise Broken(Rule.STORED, text)
        if links:
            return State(Place.RETRY, *links[0][:3], letters)
        if is_finished:
            return State(Place.DONE, letters=letters)
        return State(Place.WAITING, *(delivery[:3] if delivery else (0, 0, 0)), letters)

    def check_nothing_else(self, known: set[tuple[int, int]]) -> None:
        """It says something only of records that are there."""
        if lost := self.links.keys() - known:
            raise Broken(Rule.RETENTION, f"{self._name} needs the records {sorted(lost)} for retries, they are gone")
        if left := self._deliveries.keys() - known:
            raise Broken(Rule.LEFT, f"{self._name} remembers deliveries of {sorted(left)}, which are gone")


def truths(store: Store) -> dict[str, Truth]:
    """What the store has of all groups, by name."""
    with store.snapshot() as reader:
        marks = list(walk_marks(reader, DEFINITIONS))
    found = {}
    for key, value in marks:
        definition = msgspec.msgpack.decode(value, type=GroupDefinition)
        if not definition.is_removed:
            found[definition.name] = Truth(store, int(key.removeprefix(DEFINITIONS)), definition)
    return found
