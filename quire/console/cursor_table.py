"""A table of a list that has no end to count to: the next page begins where the last one ended."""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.elements import block, say
from quire.console.page import Page
from quire.console.row_table import Column, RowTable, Verbs

ROWS = 50
"""How many entries a page has."""


class CursorTable:
    """A table whose pages follow one another.

    Args:
        page: where it is.
        columns: its columns.
        path: the path of the list.
        key: where the entries are in the answer.
        empty: what is said where there is nothing.
        identity: the field of an entry that tells it from the others.
        cursor: the parameter that says where a page begins.
    """

    def __init__(
        self, page: Page, columns: Sequence[Column], path: str, key: str, empty: str, *, identity: str = "id",
        cursor: str = "after",
    ) -> None:  # fmt: skip
        self._page = page
        self._path = path
        self._key = key
        self._cursor = cursor
        self._starts: list[str | None] = [page.query.get("after") or None]  # where this page begins, and those before
        self._next: str | None = None
        self.query: dict[str, object] = {}
        self._rows = RowTable(columns, empty, identity=identity, pagination=0)
        self._rows.table.props("hide-pagination")
        with block("line"):
            self._first = ui.button("First", icon="first_page", on_click=self.restart)
            self._back = ui.button("Back", icon="chevron_left", on_click=self._previous)
            self._forward = ui.button("Next", icon="chevron_right", on_click=self._following)
            for button in (self._first, self._back, self._forward):
                button.props("dense outline").classes("act")
            self._count = say("", classes="mute small").props('aria-live="polite"')

    def row_actions(self, verbs: Verbs) -> None:
        """Have buttons in each row."""
        self._rows.row_actions(verbs)

    async def load(self) -> None:
        """Ask for the page and show it."""
        answer = await self._page.get(self._path, limit=ROWS, **{self._cursor: self._starts[-1]}, **self.query)
        self.show(answer)

    def show(self, answer: dict[str, Any]) -> None:
        """Show a page."""
        self._rows.show(answer[self._key])
        following = answer.get("next")
        self._next = None if following is None else str(following)
        total = answer.get("total")
        self._count.text = "" if total is None else f"{shown.number(total)} in all"
        self._first.set_enabled(self._starts[-1] is not None)
        self._back.set_enabled(len(self._starts) > 1)
        self._forward.set_enabled(self._next is not None)

    async def reload(self) -> None:
        """Ask again after something was changed."""
        await self._page.attempt(self._loaded())

    async def restart(self) -> None:
        """Begin again."""
        self._starts = [None]
        await self._moved()

    async def _previous(self) -> None:
        self._starts.pop()
        await self._moved()

    async def _following(self) -> None:
        self._starts.append(self._next)
        await self._moved()

    async def _moved(self) -> None:
        self._page.remember(after=self._starts[-1])
        await self.reload()

    async def _loaded(self) -> dict[str, Any]:
        await self.load()
        return {}
