"""The scheduled messages in memory: the earliest ones, a bounded number."""

from unittest.mock import patch

import pytest

from quire.broker import schedule as schedule_module
from quire.broker.schedule import MOST, MOST_BYTES, DueSoon
from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Expiration, StoredDestination, WriteBatch
from quire.store.memory import MemoryStore
from quire.store.pages import PagedReader

LANE = 7
END = 1 << 40


def record(sequence: int, due: int, size: int = 10) -> Message:
    return Message(sequence, b"\n" + b"x" * (size - 1), due)


def store_of(*records: Message, others: tuple[Message, ...] = ()) -> MemoryStore:
    """A store with the schedule's records, and with a queue's messages that expire."""
    store = MemoryStore()
    store.open()
    batch = WriteBatch()
    batch.destinations[1] = StoredDestination(1, "schedule", "s", {}, (LANE,))
    batch.destinations[2] = StoredDestination(2, "queue", "q", {}, (2,))
    batch.lane(LANE).appends = list(records)
    batch.lane(2).appends = list(others)
    store.apply(batch)
    return store


def read(
    store: MemoryStore, horizon: int = END, passed: set[int] | None = None, soon: DueSoon | None = None
) -> DueSoon:
    soon = DueSoon() if soon is None else soon
    with store.snapshot() as reader:
        soon.read(reader, LANE, horizon, passed or set())
    return soon


def empty(horizon: int = END) -> DueSoon:
    """Nothing is due up to the horizon."""
    return read(store_of(), horizon)


def drain(soon: DueSoon) -> list[int]:
    """The sequences of all records, in the order they are taken out."""
    found = []
    while (message := soon.pop(END)) is not None:
        found.append(message.sequence)
    return found


def test_records_come_in_the_order_they_are_due_and_of_their_lane() -> None:
    soon = empty()
    for sequence, due in ((4, 20), (1, 30), (3, 10), (2, 20)):
        soon.add(record(sequence, due))
    assert soon.earliest == 10
    assert drain(soon) == [3, 2, 4, 1]
    assert soon.earliest is None


def test_nothing_is_taken_out_before_it_is_due() -> None:
    soon = empty()
    soon.add(record(1, 10))
    assert soon.pop(9) is None
    assert soon.pop(10) is not None


def test_the_store_is_read_up_to_the_horizon_without_what_is_passed_over() -> None:
    store = store_of(record(1, 50), record(2, 30), record(3, 40), record(4, 51))
    assert drain(read(store, horizon=50, passed={3})) == [2, 1]


def test_behind_messages_of_queues_that_expire_the_next_look_goes_on() -> None:
    others = tuple(record(sequence, 1) for sequence in range(1, 100))
    store = store_of(record(1, 50), others=others)
    with patch.object(schedule_module, "MOST_EXPIRATIONS", 40):
        soon = DueSoon()
        looks = 0
        while not soon:
            assert soon.has_more
            read(store, soon=soon)
            looks += 1
        assert looks == 3
    assert (drain(soon), soon.has_more) == ([1], False)


def test_more_than_fits_is_read_when_all_is_taken_out() -> None:
    store = store_of(*[record(sequence, sequence) for sequence in range(1, 2 * MOST)])
    soon = read(store)
    assert (len(soon), soon.has_more) == (MOST, True)
    assert drain(soon)[-1] == MOST
    read(store, soon=soon)
    assert (drain(soon), soon.has_more) == (list(range(MOST + 1, 2 * MOST)), False)


def test_what_was_read_completely_has_no_more() -> None:
    soon = read(store_of(record(1, 1)))
    assert drain(soon) == [1]
    assert not soon.has_more


def test_a_record_that_the_index_has_further_on_is_found_there() -> None:
    soon = empty(horizon=50)
    soon.add(record(1, 51))
    assert len(soon) == 0
    assert drain(read(store_of(record(1, 51), record(2, 50)), horizon=60, soon=soon)) == [1]


def test_a_clock_that_goes_back_makes_nobody_read_again() -> None:
    soon = empty(horizon=50)
    read(store_of(record(1, 45)), horizon=40, soon=soon)
    soon.add(record(1, 45))
    assert drain(soon) == [1]


def test_large_records_are_read_a_few_at_a_time_and_one_at_least() -> None:
    store = store_of(*[record(sequence, sequence, MOST_BYTES // 3) for sequence in range(1, 9)])
    assert drain(read(store)) == [1, 2]
    assert drain(read(store_of(record(1, 1, 2 * MOST_BYTES), record(2, 2)))) == [1]


def test_a_look_makes_a_bounded_number_of_reads() -> None:
    store = store_of(*[record(sequence, 99 - sequence) for sequence in range(1, 10)])
    with patch.object(schedule_module, "MOST_READS", 4):
        soon = read(store)
        assert drain(soon) == [9, 8, 7, 6]
        assert soon.has_more
        assert drain(read(store, soon=soon)) == [5, 4, 3, 2]


def test_an_added_record_that_is_due_earlier_drives_the_last_one_out() -> None:
    soon = empty()
    added = [record(sequence, sequence + 10) for sequence in range(1, MOST + 1)]
    for each in (*added, record(MOST + 1, 5)):
        soon.add(each)
    sequences = drain(soon)
    assert (len(sequences), sequences[0], sequences[-1]) == (MOST, MOST + 1, MOST - 1)
    assert soon.has_more
    assert drain(read(store_of(*added), soon=soon)) == [MOST]


def test_a_record_that_is_due_after_one_that_was_left_out_is_left_out_too() -> None:
    soon = empty()
    half = MOST_BYTES // 2 - MESSAGE_OVERHEAD
    for sequence in (1, 2, 3):
        soon.add(record(sequence, 10 * sequence, half))
    assert soon.pop(10) is not None
    soon.add(record(4, 40))
    soon.add(record(5, 25))
    assert drain(soon) == [2, 5]


def test_a_record_that_is_removed_is_taken_out() -> None:
    soon = empty()
    for sequence in (1, 2, 3):
        soon.add(record(sequence, sequence))
    soon.discard(2)
    soon.discard(9)
    assert drain(soon) == [1, 3]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_record_that_the_index_names_and_the_lane_has_not_is_told(lost: int) -> None:
    store = store_of(record(1, 1), record(2, 1), record(3, 1))
    with patch.object(PagedReader, "expired", lambda *_: [Expiration(1, LANE, 1), Expiration(1, LANE, 2)]):
        store.apply(removal(lost))
        with pytest.raises(StoreCorrupt, match=f"record {lost} of lane 7 is in the index") as told:
            read(store)
    assert told.value.data == {"lane": LANE, "sequence": lost}


def removal(sequence: int) -> WriteBatch:
    batch = WriteBatch()
    batch.lane(LANE).removals = [sequence]
    return batch
