"""Answers of several shards become one."""

import math
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, groupby, islice
from typing import Any

import msgspec

from quire.http.listing import TableQuery

LARGEST_OF = ("at", "uptime_seconds", "sampled_seconds", "age_seconds")
"""Numbers that do not add up: the largest counts."""

Row = tuple[Any, dict[str, Any]]
"""An entry of a list, with its key."""


def summed(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers about one thing at several shards: numbers add up, lists follow each other, texts are the first's."""
    return {key: _joined(key, [answer[key] for answer in answers if key in answer]) for key in answers[0]}


def _joined(key: str, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    if isinstance(first, bool):
        return any(known)
    if isinstance(first, int | float):
        return max(known) if key in LARGEST_OF or key.endswith("_age_seconds") else sum(known)
    if isinstance(first, list):
        return [entry for value in known for entry in value]
    if isinstance(first, dict):
        return summed(known)
    return next((value for value in known if value != "running"), first) if key == "state" else first


class PartPage(msgspec.Struct, frozen=True):
    """The page of one shard (``quire.http.listing.Part``)."""

    page: dict[str, Any]
    keys: list[Any]

    def with_next(self, part: "PartPage", entries: str) -> "PartPage":
        """This page, and the one behind it."""
        return PartPage({**part.page, entries: self.page[entries] + part.page[entries]}, self.keys + part.keys)


class ListJoin:
    """Joins the pages of a list, all in the same order.

    Args:
        entries: the name of the entries in the page.
        query: which part of the list is wanted.
    """

    def __init__(self, entries: str, query: TableQuery) -> None:
        self._entries = entries
        self._query = query

    def join(self, parts: dict[int, PartPage]) -> dict[str, Any]:
        """The page of all, from those of the shards: each has the first ``offset + limit`` entries of its list."""
        rows = self._rows(parts)
        first, limit = self._query.offset, self._query.limit
        page = list(islice(rows, first, first + limit))
        is_more = next(rows, None) is not None or any([part.page["next"] for part in parts.values()])
        joined = summed([part.page for part in parts.values()])
        joined[self._entries] = [entry for _, entry in page]
        joined["next"] = page[-1][0] if is_more and page and self._is_by_name(parts) else None
        return joined

    def _is_by_name(self, parts: dict[int, PartPage]) -> bool:
        return not self._query.sort and any([part.keys for part in parts.values()])

    def _rows(self, parts: dict[int, PartPage]) -> Iterator[Row]:
        """All entries with their keys, in order."""
        lists = [self._of_shard(shard, part) for shard, part in sorted(parts.items())]
        if not any([part.keys for part in parts.values()]):  # they have no order
            return chain.from_iterable(lists)
        ordered = merge(*lists, key=_order, reverse=self._query.sort.startswith("-"))
        return _with_parts_as_one(ordered) if self._is_by_name(parts) else iter(ordered)

    def _of_shard(self, shard: int, part: PartPage) -> list[Row]:
        entries = [{**entry, "shard": shard} for entry in part.page[self._entries]]
        return list(zip(part.keys or [None] * len(entries), entries, strict=True))


def _with_parts_as_one(rows: Iterable[Row]) -> Iterator[Row]:
    """The parts of a spread destination, which follow each other, as one entry."""
    for name, group in groupby(rows, key=lambda row: row[0]):
        entries = [entry for _, entry in group]
        yield name, entries[0] if len(entries) == 1 else {**summed(entries), "shard": None}


def _order(row: Row) -> Any:
    """By what an entry is sorted; JSON writes an infinite number as null, and all of them are negative."""
    return -math.inf if row[0] is None else row[0]
