"""Lists that are sorted, searched and paged by the broker."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import GenericAlias
from typing import Any, TypeVar

import msgspec

from quire.destination import DestinationKind
from quire.http.endpoint import Call, Endpoint, Fields, Number, PageLimit
from quire.http.rights import Right
from quire.management.tables.table import Selection, Table, Wanted
from quire.security import Access, Permission

S = TypeVar("S")


class Part(msgspec.Struct, frozen=True):
    """The page of one shard, for the process that joins those of all: with the keys by which it is sorted."""

    page: Any
    keys: list[Any]


class TableQuery(Fields, frozen=True):
    """Which part of a list to show.

    ``after`` is the ``next`` of the page before, in lists that are in the order of their names; ``offset`` leaves out
    so many entries in any order. ``sort`` is a column, with ``-`` in front the largest value first. ``search`` is a
    text in the name, and ``only`` a word that chooses among the entries. An unknown word is an error that names the
    known ones.
    """

    limit: PageLimit = 100
    after: str = ""
    offset: Number = 0
    sort: str = ""
    search: str = ""
    only: str = ""

    def wanted(self) -> Wanted:
        """The same for management."""
        return Wanted(self.limit, self.offset, self.after, self.sort, self.search, self.only)


Sees = Callable[[Access, Any], bool]
"""Whether a caller may know of an entry."""


def see_named(kind: DestinationKind) -> Sees:
    """The caller sees destinations by their kind and name."""
    return lambda access, source: access.sees(kind, source.destination.name)


async def selected(call: Call, table: Table[S], sees: Sees | None = None) -> Selection[S]:
    """The page of a table that a call asks for; the event loop has its turn in between."""
    if sees is not None and not call.access.may(Permission.MONITOR):
        table = replace(table, is_visible=partial(sees, call.access))
    selection = Selection(table, call.query.wanted())
    for _ in selection:
        await asyncio.sleep(0)
    return selection


def table_listing(
    name: str, path: str, right: Right, summary: str, key: str, kind: type, table: Callable[[Call], Table[Any]],
    status: Callable[[Call, Any], Any], sees: Sees | None = None,
) -> Endpoint:  # fmt: skip
    """The row of a list: a page of entries ``key`` of a ``kind``, ``next`` and ``total``.

    With ``sees`` the list has only entries that the caller may see.
    """
    fields: list[tuple[str, Any]] = [(key, GenericAlias(list, (kind,))), ("next", str | None), ("total", int)]
    answer: Any = msgspec.defstruct(name, fields, frozen=True, namespace={"__doc__": summary}, module=__name__)

    async def handle(call: Call) -> Any:
        selection = await selected(call, table(call), sees)
        entries = await call.gathered(status(call, entry) for entry in selection.found)
        page = answer(entries, selection.next, selection.total)
        return Part(page, selection.keys) if call.is_part else page

    return Endpoint("GET", path, right, summary, handle, answer, TableQuery)
