"""What each turn of a broker reads and writes: the most of it tells whether work in steps has a budget."""

from dataclasses import dataclass

from quire.message import Message
from quire.store.base import FIRST_EXPIRATION, Expiration, Link, Page, WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker


class CountingStore(MemoryStore):
    """An open store in memory that counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.entries = self.loads = 0
        self.open()

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        return self._counted(super().load(lane, sequences))

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        page = super().page(lane, start, byte_budget, limit)
        self._counted(page.messages)
        return page

    def _counted(self, messages: list[Message]) -> list[Message]:
        self.loads += 1
        self.entries += len(messages)
        self.bytes += sum([message.size for message in messages])
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        links = super().links(lane, start, limit)
        self.entries += len(links)
        return links

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        found = super().expired(now_ms, limit, after)
        self.entries += len(found)
        return found


@dataclass
class Most:
    """The most that any turn read, or any commit had."""

    bytes: int = 0  # of messages read in one turn
    entries: int = 0  # read in one turn
    removals: int = 0  # records that one commit removes
    written: int = 0  # bytes of messages that one commit writes
    commits: int = 0  # how many commits there were

    def note(self, batch: WriteBatch) -> None:
        parts = batch.lanes.values()
        self.commits += 1
        self.removals = max(self.removals, sum([len(part.removals) for part in parts]))
        self.written = max(self.written, sum([message.size for part in parts for message in part.appends]))


def counting(settings: object = None) -> SteppedBroker:
    return SteppedBroker(settings, store=CountingStore())  # type: ignore[arg-type]


def run_counted(stepped: SteppedBroker, most: Most | None = None) -> Most:
    most = Most() if most is None else most
    store = stepped.store
    assert isinstance(store, CountingStore)
    while stepped.is_turn_wanted or stepped.writer.batch is not None:
        store.bytes = store.entries = 0
        if stepped.is_turn_wanted:
            stepped.turn()
        else:
            assert stepped.writer.batch is not None
            most.note(stepped.writer.batch)
            stepped.commit()
        most.bytes, most.entries = max(most.bytes, store.bytes), max(most.entries, store.entries)
    return most


def advance_counted(stepped: SteppedBroker, seconds: float) -> Most:
    most = Most()
    for _ in range(round(seconds * 2)):
        stepped.advance(0.5)
        run_counted(stepped, most)
    return most
