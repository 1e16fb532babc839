import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cursors.ack_set import PAGE_RANGES, AckSet
from quire.errors import InvalidArgument, StoreCorrupt


def finished(base: int, *ranges: tuple[int, int]) -> AckSet:
    """A set of a base and ranges."""
    acks = AckSet(base)
    for first, last in ranges:
        acks.add_range(first, last)
    return acks


def shown(acks: AckSet) -> tuple[int, list[tuple[int, int]]]:
    """Base and ranges."""
    return acks.base, list(acks.ranges())


def every_other(count: int) -> AckSet:
    """A set that finished 2, 4, 6 and so on, and has been stored."""
    acks = AckSet()
    acks.add_all(range(2, 2 * count + 1, 2))
    acks.changed_pages()
    return acks


def test_a_new_set_has_finished_nothing() -> None:
    acks = AckSet()
    assert shown(acks) == (0, [])
    assert (acks.holes, acks.count_above_base, acks.next_unfinished(0), 1 in acks) == (0, 0, 1, False)


def test_finishing_in_order_moves_the_base() -> None:
    acks = AckSet(10)
    acks.add(11)
    acks.add_range(12, 20)
    assert shown(acks) == (20, [])


def test_what_is_finished_out_of_order_is_known_exactly() -> None:
    acks = AckSet(10)
    acks.add_all([12, 13, 13, 20])
    acks.add(15)
    assert shown(acks) == (10, [(12, 13), (15, 15), (20, 20)])
    assert [sequence for sequence in range(9, 22) if sequence in acks] == [9, 10, 12, 13, 15, 20]
    assert (acks.holes, acks.count_above_base) == (3, 4)


def test_a_filled_hole_joins_its_neighbours() -> None:
    acks = finished(10, (12, 13), (15, 15), (20, 20))
    acks.add(14)
    assert shown(acks) == (10, [(12, 15), (20, 20)])
    acks.add(11)
    assert shown(acks) == (15, [(20, 20)])
    assert (acks.holes, acks.count_above_base) == (1, 1)


def test_a_range_swallows_what_it_meets() -> None:
    acks = finished(10, (12, 13), (15, 15), (20, 22), (30, 30))
    acks.add_range(14, 21)
    assert shown(acks) == (10, [(12, 22), (30, 30)])
    acks.add_range(5, 40)
    assert shown(acks) == (40, [])


def test_finishing_twice_changes_nothing() -> None:
    acks = finished(10, (12, 13), (15, 20))
    acks.changed_pages()
    acks.add_all([3, 10, 12, 13, 17])
    acks.add_range(15, 20)
    assert shown(acks) == (10, [(12, 13), (15, 20)])
    assert acks.changed_pages() == {}


@pytest.mark.parametrize(
    ("after", "expected"), [(0, 11), (9, 11), (10, 11), (11, 14), (12, 14), (13, 14), (14, 16), (15, 16), (99, 100)]
)
def test_the_next_unfinished_sequence(after: int, expected: int) -> None:
    assert finished(10, (12, 13), (15, 15)).next_unfinished(after) == expected


@pytest.mark.parametrize(
    ("first", "last", "base", "ranges"),
    [
        (11, 11, 10, [(12, 16), (20, 20)]),
        (17, 19, 10, [(12, 16), (20, 20)]),
        (21, 99, 10, [(12, 16), (20, 20)]),
        (12, 16, 10, [(20, 20)]),
        (13, 14, 10, [(12, 12), (15, 16), (20, 20)]),
        (15, 20, 10, [(12, 14)]),
        (5, 6, 4, [(7, 10), (12, 16), (20, 20)]),
        (10, 13, 9, [(14, 16), (20, 20)]),
        (1, 99, 0, []),
    ],
)
def test_what_is_made_unfinished_is_unfinished(first: int, last: int, base: int, ranges: list[tuple[int, int]]) -> None:
    acks = finished(10, (12, 16), (20, 20))
    acks.discard_range(first, last)
    assert shown(acks) == (base, ranges)


def test_merging_finishes_what_either_has_finished() -> None:
    acks = finished(10, (12, 13), (20, 20))
    acks.merge(finished(11, (15, 19), (30, 31)))
    assert shown(acks) == (13, [(15, 20), (30, 31)])
    acks.merge(AckSet())
    acks.merge(acks)
    assert shown(acks) == (13, [(15, 20), (30, 31)])


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 5), (-3, 5), (6, 5)])
def test_what_is_no_range_is_refused(first: int, last: int) -> None:
    acks = AckSet(3)
    for change in (acks.add_range, acks.discard_range):
        with pytest.raises(InvalidArgument):
            change(first, last)
    assert shown(acks) == (3, [])


# Bytes and pages


def stored_pages(acks: AckSet) -> dict[int, bytes]:
    """All pages of a set that was never stored."""
    return {key: page for key, page in acks.changed_pages().items() if page}


def test_ten_thousand_sequences_with_one_hole_in_a_hundred_take_less_than_a_kilobyte() -> None:
    holes = set(random.Random(0).sample(range(1, 10_001), 100))
    acks = AckSet()
    acks.add_all([sequence for sequence in range(1, 10_001) if sequence not in holes])
    pages = stored_pages(acks)
    assert sum(map(len, pages.values())) < 300
    decoded = AckSet.from_pages(pages)
    assert {sequence for sequence in range(1, 10_001) if sequence not in decoded} == holes


def test_what_was_encoded_is_decoded() -> None:
    for acks in (AckSet(), AckSet(2**62), finished(0, (2, 2)), finished(127, (129, 400), (2**40, 2**63 - 2))):
        again = AckSet.from_pages(stored_pages(acks))
        assert shown(again) == shown(acks)
        assert (again.holes, again.count_above_base) == (acks.holes, acks.count_above_base)


def test_a_new_set_is_stored_and_then_only_what_changes() -> None:
    acks = AckSet(7)
    stored = acks.changed_pages()
    assert list(stored) == [0]
    assert acks.changed_pages() == {}
    acks.add(8)
    assert list(acks.changed_pages()) == [0]


def test_pages_are_bounded() -> None:
    acks = AckSet()
    acks.add_all(range(2, 20 * PAGE_RANGES, 2))
    pages = stored_pages(acks)
    assert 10 < len(pages) < 25
    assert max(map(len, pages.values())) < 4096


def test_a_change_rewrites_the_page_it_touches_and_no_other() -> None:
    acks = every_other(10 * PAGE_RANGES)
    acks.add(9 * PAGE_RANGES + 1)
    (changed,) = acks.changed_pages().values()
    assert changed
    assert len(changed) < 4096
    acks.add(1)
    assert acks.base == 2
    assert list(acks.changed_pages()) == [0]


def test_filled_holes_give_their_pages_back() -> None:
    acks = every_other(10 * PAGE_RANGES)
    acks.add_all(range(1, 20 * PAGE_RANGES))
    assert shown(acks) == (20 * PAGE_RANGES, [])
    changed = acks.changed_pages()
    assert len(changed) > 10
    assert [key for key, page in changed.items() if page is not None] == [0]


def test_a_page_that_is_unfinished_as_a_whole_is_removed() -> None:
    acks = AckSet()
    acks.add_all(range(2, 10 * PAGE_RANGES, 2))
    keys = sorted(acks.changed_pages())
    acks.discard_range(keys[2], keys[3] - 1)
    assert acks.changed_pages() == {keys[2]: None}


def test_pages_after_a_commit_that_failed() -> None:
    acks = AckSet()
    acks.add_all(range(2, 6 * PAGE_RANGES, 2))
    stored = acks.changed_pages()
    acks.add_range(3 * PAGE_RANGES, 5 * PAGE_RANGES)
    failed = acks.changed_pages()
    acks.add(1)
    stored |= {**failed, **acks.changed_pages()}
    assert shown(AckSet.from_pages({key: page for key, page in stored.items() if page})) == shown(acks)


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {0: b""},
        {0: b"\x00"},
        {0: b"\x01\x00"},  # begins at 1
        {0: b"\x00\x05\x80"},  # ends within a number
        {0: b"\x00\x05\x00"},
        {0: b"\x00" + b"\xff" * 9 + b"\x01"},  # larger than a sequence can be
        {2: b"\x02\x00"},
        {0: b"\x00\x05", 9: b"\x0a\x00"},  # begins at 10
        {0: b"\x00\x05", 6: b"\x06\x00"},  # adjacent to the base
        {0: b"\x00\x05\x03\x05", 12: b"\x0c\x00"},  # within the range before it
    ],
)
def test_damaged_pages_are_told(pages: dict[int, bytes]) -> None:
    with pytest.raises(StoreCorrupt):
        AckSet.from_pages(pages)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_set_or_damaged(data: bytes) -> None:
    try:
        acks = AckSet.from_pages({0: data})
    except StoreCorrupt:
        return
    again = AckSet()
    again.merge(acks)
    assert shown(AckSet.from_pages(stored_pages(again))) == shown(acks)
    assert acks.next_unfinished(acks.base) == acks.base + 1
