"""Lists that are sorted, searched and paged."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidArgument
from quire.management.tables import STEP, Selection, Table, Wanted


class Entry(NamedTuple):
    name: str
    depth: int


ENTRIES = [Entry("a", 3), Entry("B", 0), Entry("c", 3), Entry("d", 7)]


def table(entries: Sequence[Entry] = ENTRIES, *, is_ordered: bool = False, **options: Any) -> Table[Entry]:
    return Table(
        lambda: entries, lambda e: e.name, {"depth": lambda e: e.depth}, {"nonempty": lambda e: e.depth > 0},
        is_ordered=is_ordered, **options,
    )  # fmt: skip


def selected(wanted: Wanted, of: Table[Entry]) -> Selection[Entry]:
    selection = Selection(of, wanted)
    for _ in selection:
        pass
    return selection


def names(wanted: Wanted, of: Table[Entry] | None = None) -> str:
    return "".join([entry.name for entry in selected(wanted, of or table()).found])


def test_a_list_is_in_its_own_order_without_a_column() -> None:
    assert names(Wanted()) == "aBcd"
    assert names(Wanted(limit=2, offset=1)) == "Bc"


def test_a_column_sorts_and_entries_of_one_value_keep_their_order() -> None:
    assert names(Wanted(sort="depth")) == "Bacd"
    assert names(Wanted(sort="-depth")) == "dacB"
    assert names(Wanted(sort="-name")) == "dcaB"


def test_search_and_only_choose_and_the_total_counts_what_they_chose() -> None:
    found = selected(Wanted(search="b"), table())
    assert (found.found, found.total) == ([Entry("B", 0)], 1)
    found = selected(Wanted(only="nonempty", sort="-depth", limit=2), table())
    assert (found.found, found.total) == ([Entry("d", 7), Entry("a", 3)], 3)


def test_what_a_caller_may_not_see_is_neither_found_nor_counted() -> None:
    found = selected(Wanted(), table(is_visible=lambda entry: entry.name != "c"))
    assert ([entry.name for entry in found.found], found.total) == (["a", "B", "d"], 3)


def test_a_page_in_the_order_of_names_says_where_the_next_one_begins() -> None:
    ordered = table(sorted(ENTRIES), is_ordered=True)
    first = selected(Wanted(limit=3), ordered)
    assert ([entry.name for entry in first.found], first.next, first.total) == (["B", "a", "c"], "c", 4)
    rest = selected(Wanted(limit=3, after="c"), ordered)
    assert ([entry.name for entry in rest.found], rest.next, rest.total) == (["d"], None, 4)
    chosen = selected(Wanted(limit=1, after="a", only="nonempty"), ordered)
    assert ([entry.name for entry in chosen.found], chosen.next, chosen.total) == (["c"], "c", 3)


@pytest.mark.parametrize(
    ("wanted", "known"),
    [(Wanted(sort="size"), "name, depth"), (Wanted(only="all"), "nonempty"), (Wanted(after="a"), "offset")],
)
def test_an_unknown_word_is_an_error_that_names_the_known_ones(wanted: Wanted, known: str) -> None:
    with pytest.raises(InvalidArgument, match=known):
        Selection(table(), wanted)


@given(
    depths=st.lists(st.integers(0, 5), max_size=3 * STEP), offset=st.integers(0, 20), limit=st.integers(1, 30),
    descending=st.booleans(),
)  # fmt: skip
def test_a_page_is_what_sorting_all_would_give(depths: list[int], offset: int, limit: int, descending: bool) -> None:
    entries = [Entry(f"{number:05d}", depth) for number, depth in enumerate(depths)]
    wanted = Wanted(limit, offset, sort="-depth" if descending else "depth")
    expected = sorted(entries, key=lambda entry: entry.depth, reverse=descending)[offset : offset + limit]
    assert selected(wanted, table(entries)).found == expected


def test_a_long_list_is_passed_in_steps() -> None:
    entries = [Entry(str(number), number) for number in range(10 * STEP)]
    assert len(list(Selection(table(entries), Wanted(sort="-depth")))) == 10
