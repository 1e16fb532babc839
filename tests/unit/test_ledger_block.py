"""The ledger's blocks: packed, and unpacked to what they were made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.ledger_block import (
    Ids,
    LedgerEvent,
    Run,
    decode_block,
    encode_block,
    ids_of,
    ranges_of,
    rows,
    sent_of,
    unpacked,
)
from quire.message import Message


def message(sequence: int, id: str, time: int = 5) -> Message:
    return Message(sequence, b"message-id:%s\ntimestamp:%d\n\nbody" % (id.encode(), time))


@given(st.sets(st.integers(1, 60)))
def test_any_sequences_come_back_in_ascending_order(sequences: set[int]) -> None:
    assert list(unpacked(ranges_of(list(sequences)))) == sorted(sequences)


def test_neighbours_take_two_numbers_however_many_they_are() -> None:
    assert ranges_of([9, 7, 8]) == [7, 3]


@pytest.mark.slow
@given(st.lists(st.integers(1, 10**6), min_size=1, unique=True).map(sorted))
def test_ids_of_one_broker_come_back(numbers: list[int]) -> None:
    packed = ids_of([message(1, f"ID\\cab-17-{number}") for number in numbers])
    assert packed.prefix == "ID:ab-17-"
    assert list(unpacked(packed.numbers)) == numbers


@pytest.mark.parametrize("ids", [["a"], ["a-1", "b-2"], ["a-1", "a-x"], ["a-1", "b-7", "a-5"]])
def test_other_ids_are_written_out(ids: list[str]) -> None:
    assert ids_of([message(1, id) for id in ids]) == Ids(others=ids)


def test_times_of_sending_are_runs() -> None:
    assert sent_of([message(1, "a", time) for time in (5, 5, 5)]) == [5, 3]
    assert sent_of([message(1, "a", time) for time in (5, 5, 6, 8)]) == [5, 2, 6, 1, 8, 1]


def test_a_commit_is_a_send_and_a_commit_of_each_message() -> None:
    run = Run("queue://q", LedgerEvent.COMMIT, 9, "peer", "", 0, [3, 2], ids=Ids("ID:1-", [7, 2]), sent=[5, 1, 6, 1])
    assert [(row.event, row.sequence, row.message_id, row.time, row.producer) for row in rows([run])] == [
        ("send", 3, "ID:1-7", 5, "peer"),
        ("commit", 3, "ID:1-7", 9, "peer"),
        ("send", 4, "ID:1-8", 6, "peer"),
        ("commit", 4, "ID:1-8", 9, "peer"),
    ]


def test_other_events_say_whose_they_are_and_which_were_flagged() -> None:
    run = Run("topic://t", LedgerEvent.DISPATCH, 9, "peer/0", "c.s", 0, [3, 3], flagged=[4, 1])
    found = [(row.sequence, row.consumer, row.flagged, row.message_id) for row in rows([run])]
    assert found == [(3, "c.s/peer/0", False, None), (4, "c.s/peer/0", True, None), (5, "c.s/peer/0", False, None)]
    assert [row.consumer for row in rows([Run("q", LedgerEvent.ACKNOWLEDGE, 9, "", "", 0, [1, 1])])] == [None]


def test_a_block_comes_back() -> None:
    runs = [Run("queue://q", LedgerEvent.DEAD_LETTER, 9, "", "", 0, [1, 2, 7, 1])]
    assert decode_block(encode_block(runs)) == runs
    assert [row.event for row in rows(runs)] == ["dead-letter"] * 3


@pytest.mark.parametrize("body", [b"", b"x", encode_block([])[:0], b"\x91\x01"])
def test_what_is_no_block_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a block of the ledger"):
        decode_block(body)
