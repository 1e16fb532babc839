"""A table of a list of the API: the broker sorts, searches and pages; the page has the rows that it shows, no more."""

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments, ValueChangeEventArguments

from quire.console import shown
from quire.console.elements import block, say
from quire.console.page import Page
from quire.console.poller import Watch
from quire.console.row_table import Column, Entry, RowTable, Verbs

PAGE_SIZES = [20, 50, 100, 200]
REFRESH = 5.0
"""How often a table that is seen is asked for again, in seconds."""


class ServerTable:
    """A table of a list of the API.

    Args:
        page: where it is.
        name: where the entries are in the answer, and what the columns are remembered by.
        columns: all columns there are.
        path: the path of the list; empty for the name.
        sort: the order at first, as the API has it: ``-depth``.
        filters: words for ``only``, each with what it says to the user.
        empty: what is said where there is nothing.
        search: what the field to search says; None for no search.
        identity: the field of an entry that tells it from the others.
        entry: makes what the columns show of an entry of the answer.
    """

    def __init__(
        self, page: Page, name: str, columns: Sequence[Column], *, path: str = "",
        sort: str = "name", filters: dict[str, str] | None = None, empty: str = "Nothing here.",
        search: str | None = "Search names", identity: str = "name", entry: Callable[[Entry], Entry] | None = None,
    ) -> None:  # fmt: skip
        self._page = page
        self._name = name
        self._columns = {column.name: column for column in columns}
        self._path = path or f"/{name}"
        self._entry = entry
        self._filters = filters or {}
        self._watch: Watch | None = None
        self._first_sort = sort
        self.sort = page.query.get("sort", sort)
        self.search = page.query.get("search", "")
        self.only = page.query.get("only", "")
        if self.only not in self._filters:
            self.only = ""
        if self.sort.removeprefix("-") not in self._columns:
            self.sort = sort
        self.number = max(1, int(text) if (text := page.query.get("page", "1")).isdecimal() and len(text) < 9 else 1)
        self.rows = page.preferences.rows if page.preferences.rows in PAGE_SIZES else 50
        self.total = 0
        chosen = page.preferences.columns.get(name)
        self.visible = [
            column.name for column in columns if (column.name in chosen if chosen else column.is_shown)
        ] or [columns[0].name]
        with block("toolbar"):
            self._toolbar(search)
        self._rows = RowTable(columns, empty, identity=identity, sorts=True, pagination=self._pagination())
        self.table = self._rows.table
        self.table.props["rows-per-page-options"] = PAGE_SIZES
        self.table.props["visible-columns"] = self.visible
        self.table.on("request", self._requested, ["pagination"])

    def row_actions(self, verbs: Verbs) -> None:
        """Have buttons in each row."""
        self._rows.row_actions(verbs)

    def _toolbar(self, search: str | None) -> None:
        if search is not None:
            field = ui.input(placeholder=search, value=self.search, on_change=self._searched)
            field.props(f'dense outlined clearable debounce=300 aria-label="{search}"').classes("quire-search")
            with field.add_slot("prepend"):
                ui.icon("search", size="18px")
        if self._filters:
            options = {"": "All"} | self._filters
            select = ui.select(options, value=self.only, on_change=self._filtered)
            select.props('dense outlined options-dense aria-label="Show only"')
        block("space")
        self._count = say("", classes="mute small").props('aria-live="polite"')
        with (
            ui.button(icon="view_column").props('flat dense round color=grey-6 aria-label="Columns"'),
            ui.menu(),
            block("").style("padding: 6px 14px 6px 6px"),
        ):
            for column in self._columns.values():
                box = ui.checkbox(column.label, value=column.name in self.visible)
                box.props("dense").style("display: flex; padding: 4px")
                box.on_value_change(lambda event, name=column.name: self._choose(name, shown=event.value))

    async def load(self) -> None:
        """Ask for what is to be shown, and from now on again and again."""
        query = self._query()
        self._show(await self._page.get(self._path, **query))
        if self._watch is not None:
            self._page.unwatch(self._watch)
        self._watch = self._page.watch(self._path, REFRESH, self._show, **query)

    async def reload(self) -> None:
        """Ask again after something was changed."""
        await self._page.attempt(self._loaded())

    def _query(self) -> dict[str, object]:
        offset = (self.number - 1) * self.rows
        return {
            "limit": self.rows, "offset": offset or None, "sort": self.sort, "search": self.search or None,
            "only": self.only or None,
        }  # fmt: skip

    def _pagination(self) -> dict[str, Any]:
        return {
            "sortBy": self.sort.removeprefix("-"), "descending": self.sort.startswith("-"), "page": self.number,
            "rowsPerPage": self.rows, "rowsNumber": self.total,
        }  # fmt: skip

    def _show(self, answer: dict[str, Any]) -> None:
        entries, self.total = answer[self._name], answer.get("total", len(answer[self._name]))
        self._rows.show(entries if self._entry is None else [self._entry(entry) for entry in entries])
        pagination = self._pagination()
        if pagination != self.table.pagination:
            self.table.pagination = pagination
        self._count.text = shown.number(self.total) + (" match" if self.search or self.only else " in all")

    async def _changed(self) -> None:
        self._page.remember(
            sort=None if self.sort == self._first_sort else self.sort, search=self.search, only=self.only,
            page=None if self.number == 1 else self.number,
        )  # fmt: skip
        await self._page.attempt(self._loaded())

    async def _loaded(self) -> dict[str, Any]:
        await self.load()
        return {}

    async def _requested(self, event: GenericEventArguments) -> None:
        """The user has chosen another page, another order or another size."""
        wanted = event.args["pagination"]
        rows = wanted.get("rowsPerPage")
        if rows != self.rows and rows in PAGE_SIZES:
            self.rows, wanted["page"] = rows, 1
            self._page.client.run_javascript(f"quirePreference('rows', {rows})")
        sort = str(wanted.get("sortBy") or self.sort.removeprefix("-"))
        if sort in self._columns:
            self.sort = "-" + sort if wanted.get("descending") else sort
        self.number = max(1, int(wanted.get("page") or 1))
        await self._changed()

    async def _searched(self, event: ValueChangeEventArguments[Any]) -> None:
        self.search, self.number = event.value or "", 1
        await self._changed()

    async def _filtered(self, event: ValueChangeEventArguments[Any]) -> None:
        self.only, self.number = event.value or "", 1
        await self._changed()

    def _choose(self, name: str, *, shown: bool) -> None:
        """Show a column, or hide it; the browser remembers it."""
        chosen = {*self.visible, name} if shown else {*self.visible} - {name}
        self.visible = [known for known in self._columns if known in chosen] or self.visible[:1]
        self.table.props["visible-columns"] = [*self.visible, "verbs"]
        names = ", ".join([f"'{known}'" for known in self.visible])
        self._page.client.run_javascript(f"quirePreference('columns.{self._name}', [{names}])")
