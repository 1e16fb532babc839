"""The page about one thing: its state, its numbers, plots, tables, and what may be done with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.action import Action, ActionDialog, After
from quire.console.elements import Facts, Tiles, Tone, block, say
from quire.console.page import Page
from quire.console.plot import Line, Plots
from quire.console.row_table import Column, Entry, LocalTable
from quire.console.theme import AGE, DEPTH, IN, OUT

REFRESH = 3.0
"""How often the page is asked for again, in seconds."""

MOST_ROWS = 200
"""How many rows a table of the page has at most."""

Show = Callable[[Entry], str | tuple[str, Tone]]

PLOTS = [
    ("Messages per second", [Line("in", "in", IN), Line("out", "out", OUT)]),
    ("Messages waiting", [Line("depth", "messages", DEPTH)]),
    ("Age of the oldest message, seconds", [Line("oldest", "seconds", AGE)]),
]


@dataclass(frozen=True, slots=True)
class Part:
    """A table on the page.

    Attributes:
        title: above it.
        columns: its columns.
        entries: finds its entries in the answer.
        empty: what is said where there is none.
    """

    title: str
    columns: Sequence[Column]
    entries: Callable[[Entry], Sequence[Entry]]
    empty: str = "None."


@dataclass(frozen=True, slots=True)
class Look:
    """How one kind of thing is shown.

    Attributes:
        tiles: the numbers that matter most; what is shown as a pair is the number and a tone.
        facts: the others.
        state: a word for its state.
        why: more about that state.
        of: its kind in the history of the API, if it has one.
        parts: the tables.
    """

    tiles: Mapping[str, Show]
    facts: Mapping[str, Show]
    state: Callable[[Entry], tuple[str, Tone]]
    why: Callable[[Entry], str] = lambda entry: ""
    of: str | None = None
    parts: Sequence[Part] = field(default_factory=list)


class Detail:
    """The content of such a page.

    Args:
        page: where it is.
        look: how it is shown.
        path: where the API has it.
        name: its name in the history.
    """

    def __init__(self, page: Page, look: Look, path: str, name: str) -> None:
        self._page = page
        self._look = look
        self._path = path
        with block("line"):
            self._chip = say("", classes="chip")
            self._why = say("", classes="mute")
        self._tiles = Tiles(list(look.tiles))
        plots = PLOTS[:2] if look.of in ("topic", "stream") else PLOTS  # these have no oldest message that waits
        self._plots = Plots(page, look.of, name, plots) if look.of else None
        self._parts: list[tuple[Part, LocalTable]] = []
        for part in look.parts:
            say(part.title, "h2", "bare")
            self._parts.append((part, LocalTable(part.columns, part.empty)))
        with block("card"):
            say("Details", "h2")
            self._facts = Facts(look.facts)

    async def open(self, entry: Entry) -> None:
        """Show it, and go on showing how it is."""
        self.show(entry)
        if self._plots is not None:
            await self._plots.load()
        self._page.watch(self._path, REFRESH, self.show)

    def show(self, entry: Entry) -> None:
        """Show how it is now."""
        text, tone = self._look.state(entry)
        self._chip.text = text
        self._chip.classes(replace=f"chip {tone}")
        self._why.text = self._look.why(entry)
        for name, show in self._look.tiles.items():
            self._tiles.show(name, *_pair(show(entry)))
        self._facts.show({name: show(entry) for name, show in self._look.facts.items()})
        for part, table in self._parts:
            table.show(part.entries(entry)[:MOST_ROWS])

    async def reload(self) -> None:
        """Ask again after something was changed."""
        entry = await self._page.attempt(self._page.get(self._path))
        if entry is not None:
            self.show(entry)


def _pair(value: str | tuple[str, Tone]) -> tuple[str, str, Tone]:
    return (value, "", "") if isinstance(value, str) else (value[0], "", value[1])


def link_button(page: Page, label: str, icon: str, path: str, *, main: bool = False, **query: object) -> None:
    """A button that goes to another page."""
    button = ui.button(label, icon=icon, on_click=lambda: page.go(path, **query)).classes("act")
    button.props("dense unelevated color=primary" if main else "dense outline")


def action_menu(page: Page, actions: Sequence[tuple[Action, After]]) -> None:
    """A menu of actions; without any it is not there."""
    if not actions:
        return

    async def chosen(action: Action, after: After) -> None:
        await ActionDialog(page, action, after).open()

    with ui.button("Actions", icon="expand_more").props("dense outline").classes("act"), ui.menu():
        for action, after in actions:
            ui.menu_item(f"{action.verb}…", lambda action=action, after=after: chosen(action, after))


def counted(name: str, show: Callable[[Any], str] = shown.number) -> Show:
    """Shows one field of the answer; a number, unless it is said otherwise."""
    return lambda entry: show(entry.get(name))
