"""A search for messages of a stream, and for what became of them in each consumer group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from quire.broker.queues.queue import Queue
from quire.broker.streams.lookup import Found, GroupState, Lookup, MessageState, Place, dead_letters, states_of
from quire.errors import InvalidArgument, UnknownMessage
from quire.management.described import Status, doc
from quire.management.stream_info import StreamMessage, described

if TYPE_CHECKING:
    from quire.broker.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages of a stream are looked for: by id, or by offset, or all of a key, of a time, or of both."""

    id: str | None = None  # the message id
    partition: int | None = None  # the partition of an offset
    offset: int | None = None  # the offset
    key: str | None = None  # the value of the header ``key``, or of the one that determines the partition
    since: int = 0  # when the time begins, in milliseconds since the epoch
    until: int | None = None  # where it ends: the first time that is not in it; None for now
    limit: int = 100  # how many at the most
    with_dead_letters: bool = False  # whether the dead letter queues are searched for them too


class FoundMessage(Status, frozen=True):
    """A message that was found, and its state."""

    message: Annotated[StreamMessage, doc("The message.")]
    groups: Annotated[list[GroupState], doc("The state of the message in each consumer group.")]
    dead_letters: Annotated[list[str] | None, doc("The groups with a dead letter of it; null if not searched.")]


class StreamSearch:
    """One search. Iterate over it: each step does a bounded amount of work, and others have their turn in between."""

    def __init__(self, stream: "Stream", wanted: Wanted, queues: Mapping[str, Queue]) -> None:
        self.found: list[FoundMessage] = []  # what was found, when the search is through
        self.whole = False  # whether it has seen everything there was to see
        self._stream = stream
        self._wanted = wanted
        self._queues = queues
        lookup = Lookup(stream)
        self.damaged = lookup.damaged  # partition and offset of damaged messages that it came to and passed over
        self._steps = _steps(lookup, wanted, stream.core.clock.now_ms())

    def __iter__(self) -> Iterator[None]:
        messages: list[Found] = []
        for step in self._steps:
            messages += step
            if len(messages) > self._wanted.limit:
                break
            yield
        else:
            self.whole = True
        states: dict[Place, list[GroupState]] = {}
        for partition, message in messages[: self._wanted.limit]:
            states[partition, message.sequence] = states_of(self._stream, partition, message.sequence)
            yield
        dead_lettered: dict[Place, list[str]] = {place: [] for place in states}
        if self._wanted.with_dead_letters:
            yield from self._look_for_dead_letters(states, dead_lettered)
        for partition, message in messages[: self._wanted.limit]:
            place = (partition, message.sequence)
            letters = dead_lettered[place] if self._wanted.with_dead_letters else None
            self.found.append(FoundMessage(described(*place, message), states[place], letters))

    def _look_for_dead_letters(
        self, states: dict[Place, list[GroupState]], dead_lettered: dict[Place, list[str]]
    ) -> Iterator[None]:
        """Note which groups have a dead letter of which messages."""
        for group in list(self._stream.groups.values()):
            done = GroupState(group.name, MessageState.DONE)
            places = {place for place, known in states.items() if done in known}
            queue = self._queues.get(group.policy.dead_letter_queue)
            for step in dead_letters(group, queue, places) if places else ():
                for place in step:
                    dead_lettered[place].append(group.name)
                yield


def _steps(lookup: Lookup, wanted: Wanted, now: int) -> Iterator[list[Found]]:
    by_place = wanted.offset is not None
    if by_place is not (wanted.partition is not None) or (by_place and wanted.id is not None):
        raise InvalidArgument("give an id, or a partition and an offset, or a key or a time", argument="id")
    if wanted.id is not None:
        return lookup.by_id(wanted.id)
    if wanted.partition is not None and wanted.offset is not None:
        found = lookup.at(wanted.partition, wanted.offset)
        if found is None:
            text = f"partition {wanted.partition} has no message at offset {wanted.offset}"
            raise UnknownMessage(text, partition=wanted.partition, offset=wanted.offset)
        return iter([[found]])
    until = now + 1 if wanted.until is None else wanted.until
    return lookup.by_time(wanted.since, until) if wanted.key is None else lookup.by_key(wanted.key, wanted.since, until)
