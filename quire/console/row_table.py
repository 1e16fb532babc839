"""Columns, and the rows that they make of entries of the API."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from quire.console import shown
from quire.console.elements import Tone, block

Entry = dict[str, Any]

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
Verbs = Callable[[Entry], Mapping[str, Verb]]
"""What may be done with an entry: labels of buttons, and what they do."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: its name, which is that of the order too.
        label: its title.
        show: makes the text of an entry.
        sorts: whether the broker can sort by it.
        is_text: whether it is text, on the left; numbers are on the right.
        is_shown: whether it is shown until the user chooses.
        wraps: whether long text goes on in the next line.
        link: makes a link of an entry.
        tone: what the value means.
    """

    name: str
    label: str
    show: Callable[[Entry], str]
    sorts: bool = True
    is_text: bool = False
    is_shown: bool = True
    wraps: bool = False
    link: Callable[[Entry], str | None] | None = None
    tone: Callable[[Entry], Tone] | None = None


def count_column(name: str, label: str, *, shown_at_first: bool = True, sorts: bool = True) -> Column:
    """A column of counts."""
    return Column(name, label, lambda entry: shown.number(entry.get(name)), is_shown=shown_at_first, sorts=sorts)


def rate_column(name: str, label: str) -> Column:
    """A column of rates."""
    return Column(name, label, lambda entry: shown.rate(entry.get(name)))


def size_column(name: str, label: str = "Size", *, shown_at_first: bool = True, sorts: bool = True) -> Column:
    """A column of sizes in bytes."""
    return Column(name, label, lambda entry: shown.size(entry.get(name)), is_shown=shown_at_first, sorts=sorts)


def span_column(name: str, label: str, field: str) -> Column:
    """A column of durations; the field of an entry is in seconds."""
    return Column(name, label, lambda entry: shown.span(entry.get(field)))


def time_column(name: str, label: str, field: str) -> Column:
    """A column of times in UTC."""
    return Column(name, label, lambda entry: shown.time(entry.get(field)))


def state_column(state: Callable[[Entry], tuple[str, Tone]], name: str = "state") -> Column:
    """A column of states, each in a word or two with what it means."""
    return Column(
        name, "State", lambda entry: state(entry)[0], sorts=False, is_text=True, tone=lambda entry: state(entry)[1]
    )


def text_column(name: str, label: str, *, shown_at_first: bool = True, sorts: bool = True) -> Column:
    """A column of text."""
    show = lambda entry: shown.text(entry.get(name))  # noqa: E731 - one of a row of columns
    return Column(name, label, show, is_text=True, is_shown=shown_at_first, sorts=sorts)


def _rows(columns: Sequence[Column], entries: Sequence[Entry], key: str, verbs: Verbs) -> list[dict[str, Any]]:
    """The rows of some entries, as Quasar's table takes them."""
    rows = []
    for place, entry in enumerate(entries):
        row: dict[str, Any] = {"place": place, "key": str(entry.get(key)), "verbs": list(verbs(entry))}
        row["links"] = {column.name: column.link(entry) for column in columns if column.link}
        row["tones"] = {
            column.name: f"tone-{tone}" for column in columns if column.tone and (tone := column.tone(entry))
        }
        for column in columns:
            row[column.name] = column.show(entry)
        rows.append(row)
    return rows


def _definitions(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The columns, as Quasar's table takes them."""
    return [
        {
            "name": column.name, "label": column.label, "field": column.name, "sortable": column.sorts,
            "align": "left" if column.is_text else "right", "wraps": column.wraps,
        }
        for column in columns
    ]  # fmt: skip


class RowTable:
    """A table with rows that the page gives it.

    Args:
        columns: its columns.
        empty: what is said where there is nothing.
        identity: the field of an entry that tells it from the others.
        sorts: whether the user can sort.
    """

    def __init__(
        self, columns: Sequence[Column], empty: str, *, identity: str = "name", sorts: bool = False, **options: Any
    ) -> None:
        self._columns = columns
        self._identity = identity
        self._verbs: Verbs = lambda entry: {}
        self.entries: Sequence[Entry] = []
        definitions = _definitions(columns)
        if not sorts:
            definitions = [definition | {"sortable": False} for definition in definitions]
        with block("card table-card") as self.card:
            self.table = ui.table(columns=definitions, rows=[], row_key="place", **options)
            self.table.props("dense flat binary-state-sort").props["no-data-label"] = empty
            self.table.add_slot("body-cell", CELL)

    def row_actions(self, verbs: Verbs) -> None:
        """Have buttons in each row."""
        self._verbs = verbs
        self.table.columns = [*self.table.columns, {"name": "verbs", "label": "", "field": "verbs", "align": "right"}]
        if "visible-columns" in self.table.props:
            self.table.props["visible-columns"] = [*self.table.props["visible-columns"], "verbs"]
        self.table.add_slot("body-cell-verbs", VERBS)
        self.table.on("verb", self._chosen)

    def show(self, entries: Sequence[Entry]) -> None:
        """Show entries; nothing is sent if they look as before."""
        self.entries = entries
        rows = _rows(self._columns, entries, self._identity, self._verbs)
        if rows != self.table.rows:
            self.table.rows = rows

    async def _chosen(self, event: GenericEventArguments) -> None:
        """A button of a row was pressed; the entry is the one that the user saw, wherever it is now."""
        for entry in self.entries:
            if str(entry.get(self._identity)) == event.args.get("key"):
                verb = self._verbs(entry).get(str(event.args.get("verb")))
                if verb is not None:
                    await verb(entry)
                return


class LocalTable(RowTable):
    """A short table whose entries are all there."""

    def __init__(self, columns: Sequence[Column], empty: str, identity: str = "name") -> None:
        super().__init__(columns, empty, identity=identity, pagination=0)
        self.table.props("hide-pagination")
