"""Tables: their columns, and the rows that these make of entries of the API.

In a table of a list of the API the broker sorts, searches and pages, and the page has the rows that it shows, no more.
A list that has no end to count to goes on where the page before ended.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments, ValueChangeEventArguments

from quire.console import shown
from quire.console.elements import Tone, block, button, say
from quire.console.page import Page
from quire.console.session import Watch
from quire.resources import FACT, LIST, MORE, TILE, Field, Status, Unit, shown_at

Entry = dict[str, Any]
Link = Callable[[Entry], str | None]
Show = Callable[[Entry], str | tuple[str, Tone]]
"""What is shown of an entry; what is shown as a pair is the value and a tone."""

CELL = """
<q-td :props="props">
  <a v-if="props.row.links[props.col.name]" class="cell" :href="props.row.links[props.col.name]"
     :title="props.value">{{ props.value }}</a>
  <span v-else class="cell" :class="[props.row.tones[props.col.name], props.col.wraps ? 'wrap' : '']"
        :title="props.col.wraps ? null : props.value">{{ props.value }}</span>
</q-td>
"""
"""How any cell is written: its text is text, and its link was made by the server."""

VERBS = """
<q-td :props="props" class="verbs">
  <q-btn v-for="verb in props.row.verbs" :key="verb" flat dense no-caps size="sm" :label="verb"
         @click="$parent.$emit('verb', {key: props.row.key, verb: verb})" />
</q-td>
"""
"""The cell with what may be done with an entry."""

Verb = Callable[[Entry], Awaitable[None]]
Verbs = Callable[[Entry], Mapping[str, Verb]]  # what may be done with an entry: labels of buttons, and what they do


@dataclass(frozen=True, slots=True)
class Column:
    name: str  # its name, which is that of the order too
    label: str
    show: Callable[[Entry], str]  # makes the text of an entry
    sorts: bool = True  # whether the broker can sort by it
    is_text: bool = False  # whether it is text, on the left; numbers are on the right
    is_shown: bool = True  # whether it is shown until the user chooses
    wraps: bool = False  # whether long text goes on in the next line
    link: Link | None = None  # makes a link of an entry
    tone: Callable[[Entry], Tone] | None = None  # what the value means


def column(field: Field, link: Link | None = None) -> Column:
    return Column(
        field.sort or field.name, field.label, partial(_value, field), sorts=bool(field.sort) or field.name == "name",
        is_text=field.unit in ("text", "words", "flag", "other"), is_shown=LIST in field.shown.at, link=link,
        tone=partial(_tone, field) if field.shown.is_bad or field.name == "blocked" else None,
    )  # fmt: skip


def columns_of(
    kind: type[Status], links: Mapping[str, Link] | None = None, own: Mapping[str, Column] | None = None,
    state: Callable[[Entry], tuple[str, Tone]] | None = None,
) -> list[Column]:  # fmt: skip
    """The columns of a resource, first those that are shown until the user chooses.

    Args:
        links: what makes the links of fields.
        own: the columns of fields that a page makes itself.
        state: tells the state of an entry in a word or two, and what it means; that stands behind the names.
    """
    columns = [
        (own or {}).get(field.name) or column(field, (links or {}).get(field.name))
        for place in (LIST, MORE) for field in shown_at(kind, place)
    ]  # fmt: skip
    if state is not None:
        names = [number for number, each in enumerate(columns) if each.link]
        columns.insert(names[-1] + 1, state_column(state))
    return columns


def tiles_of(kind: type[Status]) -> dict[str, Show]:
    return {field.label: partial(_toned, field) for field in shown_at(kind, TILE)}


def facts_of(kind: type[Status], inside: str = "") -> dict[str, Show]:
    """What else is shown of a resource, by its labels."""
    found: dict[str, Show] = {}
    for field in shown_at(kind, FACT):
        if field.inside is not None:
            found |= facts_of(field.inside, field.name)
        elif field.unit != "other":
            show = partial(_toned, field)
            found[field.label] = partial(_inside, inside, show) if inside else show
    return found


def _inside(name: str, show: Show, entry: Entry) -> str | tuple[str, Tone]:
    return show(entry.get(name) or {})


def _value(field: Field, entry: Entry) -> str:
    return SHOWS[field.unit](entry.get(field.name))


def _tone(field: Field, entry: Entry) -> Tone:
    return "warn" if entry.get(field.name) else ""


def _toned(field: Field, entry: Entry) -> tuple[str, Tone]:
    return _value(field, entry), _tone(field, entry) if field.shown.is_bad else ""


def _other(value: Any) -> str:
    """A list, or a cause with more about it."""
    if isinstance(value, list):
        return shown.text(", ".join(map(str, value)) or shown.UNKNOWN)
    return shown.words(value["cause"]) if value else ""


SHOWS: dict[Unit, Callable[[Any], str]] = {
    "number": shown.number, "rate": shown.rate, "size": shown.size, "span": shown.span, "time": shown.time,
    "flag": shown.yes, "text": shown.text, "words": shown.words, "other": _other,
}  # fmt: skip
"""How values are shown, by what they are."""


def state_column(state: Callable[[Entry], tuple[str, Tone]], name: str = "state") -> Column:
    return Column(
        name, "State", lambda entry: state(entry)[0], sorts=False, is_text=True, tone=lambda entry: state(entry)[1]
    )


def value_column(name: str, label: str, unit: Unit = "text") -> Column:
    """A column of a field that no resource describes; all but counts and sizes are on the left."""
    return Column(name, label, lambda entry: SHOWS[unit](entry.get(name)), is_text=unit not in ("number", "size"))


class LocalTable:
    """A table with the rows that the page gives it, all of them, unless a subclass asks for them by pages.

    Args:
        empty: what is said where there is nothing.
        identity: the field of an entry that tells it from the others.
        pagination: where it is in the list of the broker, which sorts that then.
    """

    def __init__(
        self, columns: Sequence[Column], empty: str, identity: str = "name", pagination: dict[str, Any] | None = None
    ) -> None:
        self._columns = columns
        self._identity = identity
        self._verbs: Verbs = lambda entry: {}
        self.entries: Sequence[Entry] = []
        definitions = [
            {
                "name": column.name, "label": column.label, "field": column.name, "wraps": column.wraps,
                "sortable": column.sorts and pagination is not None, "align": "left" if column.is_text else "right",
            }
            for column in columns
        ]  # fmt: skip
        with block("card table-card") as self.card:
            self.table = ui.table(columns=definitions, rows=[], row_key="place", pagination=pagination or 0)
            self.table.props("dense flat binary-state-sort").props["no-data-label"] = empty
            if pagination is None:
                self.table.props("hide-pagination")
            self.table.add_slot("body-cell", CELL)

    def row_actions(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self.table.columns = [*self.table.columns, {"name": "verbs", "label": "", "field": "verbs", "align": "right"}]
        if "visible-columns" in self.table.props:
            self.table.props["visible-columns"] = [*self.table.props["visible-columns"], "verbs"]
        self.table.add_slot("body-cell-verbs", VERBS)
        self.table.on("verb", self._chosen)

    def show(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        rows = [self._row(place, entry) for place, entry in enumerate(entries)]
        if rows != self.table.rows:
            self.table.rows = rows

    def _row(self, place: int, entry: Entry) -> dict[str, Any]:
        tones = {column.name: column.tone(entry) for column in self._columns if column.tone}
        return {
            "place": place, "key": str(entry.get(self._identity)), "verbs": list(self._verbs(entry)),
            "links": {column.name: column.link(entry) for column in self._columns if column.link},
            "tones": {name: f"tone-{tone}" for name, tone in tones.items() if tone},
            **{column.name: column.show(entry) for column in self._columns},
        }  # fmt: skip

    async def _chosen(self, event: GenericEventArguments) -> None:
        """A button of a row was pressed; the entry is the one that the user saw, wherever it is now."""
        for entry in self.entries:
            if str(entry.get(self._identity)) == event.args.get("key"):
                verb = self._verbs(entry).get(str(event.args.get("verb")))
                if verb is not None:
                    await verb(entry)
                return


PAGE_SIZES = [20, 50, 100, 200]
REFRESH = 5.0  # how often a table that is seen is asked for again, in seconds


class ServerTable(LocalTable):
    """A table of a list of the API.

    Args:
        name: where the entries are in the answer, and what the columns are remembered by.
        path: the path of the list, unless it is the name.
        sort: the order at first, as the API has it: ``-depth``.
        filters: words for ``only``, each with what it says to the user.
        empty: what is said where there is nothing.
        search: what the field to search says.
        identity: the field of an entry that tells it from the others.
        entry: makes what the columns show of an entry of the answer.
    """

    def __init__(
        self, page: Page, name: str, columns: Sequence[Column], *, path: str = "",
        sort: str = "name", filters: dict[str, str] | None = None, empty: str = "Nothing here.",
        search: str, identity: str = "name", entry: Callable[[Entry], Entry] | None = None,
    ) -> None:  # fmt: skip
        self._page = page
        self._name = name
        names = [column.name for column in columns]
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
        if self.sort.removeprefix("-") not in names:
            self.sort = sort
        self.number = max(1, int(text) if (text := page.query.get("page", "1")).isdecimal() and len(text) < 9 else 1)
        self.rows = page.preferences.rows if page.preferences.rows in PAGE_SIZES else 50
        self.total = 0
        chosen = page.preferences.columns.get(name)
        self.visible = [
            column.name for column in columns if (column.name in chosen if chosen else column.is_shown)
        ] or [columns[0].name]
        with block("toolbar"):
            self._toolbar(search, columns)
        super().__init__(columns, empty, identity, self._pagination())
        self.table.props["rows-per-page-options"] = PAGE_SIZES
        self.table.props["visible-columns"] = self.visible
        self.table.on("request", self._requested, ["pagination"])

    def _toolbar(self, search: str, columns: Sequence[Column]) -> None:
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
            for column in columns:
                box = ui.checkbox(column.label, value=column.name in self.visible)
                box.props("dense").style("display: flex; padding: 4px")
                box.on_value_change(lambda event, name=column.name: self._choose(name, shown=event.value))

    async def load(self) -> None:
        query = self._query()
        self._take(await self._page.get(self._path, **query))
        if self._watch is not None:
            self._page.unwatch(self._watch)
        self._watch = self._page.watch(self._path, REFRESH, self._take, **query)

    async def reload(self) -> None:
        await self._page.attempt(self.load())

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

    def _take(self, answer: dict[str, Any]) -> None:
        entries, self.total = answer[self._name], answer.get("total", len(answer[self._name]))
        self.show(entries if self._entry is None else [self._entry(entry) for entry in entries])
        pagination = self._pagination()
        if pagination != self.table.pagination:
            self.table.pagination = pagination
        self._count.text = shown.number(self.total) + (" match" if self.search or self.only else " in all")

    async def _changed(self) -> None:
        self._page.remember(
            sort=None if self.sort == self._first_sort else self.sort, search=self.search, only=self.only,
            page=None if self.number == 1 else self.number,
        )  # fmt: skip
        await self._page.attempt(self.load())

    async def _requested(self, event: GenericEventArguments) -> None:
        wanted = event.args["pagination"]
        rows = wanted.get("rowsPerPage")
        if rows != self.rows and rows in PAGE_SIZES:
            self.rows, wanted["page"] = rows, 1
            self._page.client.run_javascript(f"quirePreference('rows', {rows})")
        sort = str(wanted.get("sortBy") or self.sort.removeprefix("-"))
        if sort in [column.name for column in self._columns]:
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
        chosen = {*self.visible, name} if shown else {*self.visible} - {name}
        self.visible = [column.name for column in self._columns if column.name in chosen] or self.visible[:1]
        self.table.props["visible-columns"] = [*self.visible, "verbs"]
        names = ", ".join([f"'{known}'" for known in self.visible])
        self._page.client.run_javascript(f"quirePreference('columns.{self._name}', [{names}])")


ROWS = 50  # how many entries a page has


class CursorTable(LocalTable):
    """A table whose pages follow one another.

    Args:
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
        super().__init__(columns, empty, identity)
        with block("line"):
            self._first = button("First", "first_page", self.restart)
            self._back = button("Back", "chevron_left", self._previous)
            self._forward = button("Next", "chevron_right", self._following)
            self._count = say("", classes="mute small").props('aria-live="polite"')

    async def load(self) -> None:
        start = self._starts[-1]
        query = self.query if start is None else {**self.query, self._cursor: start}
        answer = await self._page.get(self._path, limit=ROWS, **query)
        self.show(answer[self._key])
        following = answer.get("next")
        self._next = None if following is None else str(following)
        total = answer.get("total")
        self._count.text = "" if total is None else f"{shown.number(total)} in all"
        self._first.set_enabled(self._starts[-1] is not None)
        self._back.set_enabled(len(self._starts) > 1)
        self._forward.set_enabled(self._next is not None)

    async def reload(self) -> None:
        await self._page.attempt(self.load())

    async def restart(self) -> None:
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
