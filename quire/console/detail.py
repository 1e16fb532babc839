"""The page about one thing: its state, its numbers, plots, tables; and the actions of operators.

What destroys goes in two steps: first what would happen, then the deed, with its progress.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nicegui import ui

from quire.console import shown
from quire.console.elements import AGE, DEPTH, IN, OUT, Facts, Field, Form, Tiles, Tone, block, button, notice, say
from quire.console.page import Page
from quire.console.plot import Line, Plots
from quire.console.tables import Column, Entry, LocalTable, Show, facts_of, tiles_of
from quire.resources import Status

PROGRESS = 0.5  # how often the progress of what takes long is asked for, in seconds

After = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Action:
    verb: str  # what it does, in a word: it is on the button
    subject: str  # what it is done to, as the user reads it: ``queue orders``
    method: str
    path: str
    effect: str  # what becomes of that many messages, after the number: ``messages are removed``
    query: dict[str, object] = field(default_factory=dict)
    fields: Sequence[Field] = ()  # what the user may say to it


class Dialog:
    """Some fields, and a button that does something with them."""

    def __init__(self, page: Page, title: str, verb: str, fields: Sequence[Field]) -> None:
        self._page = page
        # Not where the button is: a menu that closes takes what is in it away.
        with page.client, ui.dialog() as self.dialog, ui.card().classes("dialog"):
            say(title, "h2")
            self.form = Form(fields)
            self._told = block("").props('aria-live="polite"')
            with block("end"):
                self._cancel = ui.button("Cancel", on_click=self._close).props("flat color=grey-7")
                self._go = ui.button(verb, on_click=self._pressed).props("unelevated color=primary")
        self.dialog.on("hide", self.dialog.delete)

    async def _pressed(self) -> None:
        if missing := self.form.missing:
            ui.notify(f"Fill in: {missing}", type="warning")
            return
        self._go.disable()
        try:
            await self._submit()
        finally:
            self._go.enable()

    async def _submit(self) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        self.dialog.close()

    def _foretell(self, text: str, verb: str, *, is_harm: bool) -> None:
        """Say what will become of what was filled in, which stays so; the button does it now."""
        self.form.lock()
        self._told.clear()
        with self._told:
            notice(text, tone="bad" if is_harm else "")
        self._go.text = verb
        self._go.props("color=negative")


class ActionDialog(Dialog):
    """Shows what an action would touch, asks, does it, and shows how it goes on."""

    def __init__(self, page: Page, action: Action, after: After) -> None:
        self._action = action
        self._after = after
        self._token: str | None = None
        self._operation: str | None = None
        super().__init__(page, f"{action.verb} {action.subject}", "Preview", action.fields)

    async def open(self) -> None:
        """Open it; without anything to fill in it counts at once."""
        self.dialog.open()
        if not self._action.fields:
            await self._preview()

    async def _submit(self) -> None:
        await (self._preview() if self._token is None else self._do())

    async def _request(self, **query: object) -> dict[str, Any] | None:
        action = self._action
        body = self.form.body() if action.method == "POST" else None
        call = self._page.caller.call(action.method, action.path, body, **action.query, **query)
        return await self._page.attempt(call)

    async def _preview(self) -> None:
        answer = await self._request(dry_run=True)
        if answer is None:
            return
        self._token = answer["token"]
        count = ("at least " if answer["at_least"] else "") + shown.number(answer["count"])
        consumers = answer.get("consumers") or 0
        more = f" {shown.number(consumers)} consumers are disconnected." if consumers else ""
        said = f"{count} {self._action.effect}.{more}"
        verb = f"{self._action.verb} {count} messages"
        self._foretell(said[0].upper() + said[1:], verb, is_harm=bool(answer["count"] or consumers))

    async def _do(self) -> None:
        answer = await self._request(token=self._token, background=True)
        if answer is None:
            self.dialog.close()
        elif operation := answer.get("operation"):
            await self._follow(operation)
        else:
            await self._done()

    async def _follow(self, operation: dict[str, Any]) -> None:
        """Show how far it is, until it has ended or the user stops it."""
        self._operation = operation["id"]
        self._go.set_visibility(False)
        self._cancel.text = "Stop"
        self._told.clear()
        with self._told:
            bar = ui.linear_progress(0, show_value=False).props('aria-label="Progress"')
            text = say("", "div", "mute small")
        while operation["state"] == "running" and not self.dialog.is_deleted:
            _progress(operation, bar, text)
            await asyncio.sleep(PROGRESS)
            answer = await self._page.attempt(self._page.get(f"/operations/{self._operation}"))
            if answer is None:
                break
            operation = answer
        self._operation = None
        if operation["state"] == "failed":
            ui.notify(shown.text(operation["error"], 500), type="negative", multi_line=True)
        await self._done(operation["done"], stopped=operation["state"] == "cancelled")

    async def _done(self, count: int | None = None, *, stopped: bool = False) -> None:
        self.dialog.close()
        number = "" if count is None else f": {shown.number(count)} messages"
        ui.notify(f"{self._action.verb} {self._action.subject}{number}{', stopped' * stopped}", type="positive")
        answer = self._after()
        if answer is not None:
            await answer

    async def _close(self) -> None:
        if self._operation is None:
            self.dialog.close()
        else:
            await self._page.attempt(self._page.caller.call("DELETE", f"/operations/{self._operation}"))


def _progress(operation: dict[str, Any], bar: ui.linear_progress, text: Any) -> None:
    done, of = operation["done"], operation.get("of")
    bar.value = min(1.0, done / of) if of else 0.0
    text.text = f"{shown.number(done)} of {shown.number(of)} messages" if of else f"{shown.number(done)} messages"


class FormDialog(Dialog):
    def __init__(
        self, page: Page, title: str, verb: str, fields: Sequence[Field],
        send: Callable[[Form], Awaitable[dict[str, Any]]], after: Callable[[dict[str, Any]], Awaitable[None] | None],
    ) -> None:  # fmt: skip
        self._send = send
        self._after = after
        super().__init__(page, title, verb, fields)
        self._told.delete()
        self.dialog.on("keydown.enter.ctrl", self._pressed)
        self.dialog.open()

    async def _submit(self) -> None:
        answer = await self._page.attempt(self._send(self.form))
        if answer is not None:
            self.dialog.close()
            following = self._after(answer)
            if following is not None:
                await following


REFRESH = 3.0  # how often the page is asked for again, in seconds
MOST_ROWS = 200  # how many rows a table of the page has at most

PLOTS = [
    ("Messages per second", [Line("in", "in", IN), Line("out", "out", OUT)]),
    ("Messages waiting", [Line("depth", "messages", DEPTH)]),
    ("Age of the oldest message, seconds", [Line("oldest", "seconds", AGE)]),
]


class Part(NamedTuple):
    title: str
    columns: Sequence[Column]
    entries: Callable[[Entry], Sequence[Entry]]  # finds its entries in the answer
    empty: str = "None."


@dataclass(frozen=True, slots=True)
class Look:
    kind: type[Status]  # the resource; its tiles and facts follow from that
    state: Callable[[Entry], tuple[str, Tone]]  # a word for its state
    why: Callable[[Entry], str] = lambda entry: ""  # more about that state
    of: str | None = None  # its kind in the history of the API, if it has one
    parts: Sequence[Part] = ()  # the tables
    tiles: Mapping[str, Show] = field(default_factory=dict)  # more of the numbers that matter most


class Detail:
    """The content of such a page; ``name`` is its name in the history."""

    def __init__(self, page: Page, look: Look, path: str, name: str) -> None:
        self._page = page
        self._look = look
        self._path = path
        with block("line"):
            self._chip = say("", classes="chip")
            self._why = say("", classes="mute")
        self._numbers: dict[str, Show] = {**tiles_of(look.kind), **look.tiles}
        self._details = facts_of(look.kind)
        self._tiles = Tiles(list(self._numbers))
        plots = PLOTS[:2] if look.of in ("topic", "stream") else PLOTS  # these have no oldest message that waits
        self._plots = Plots(page, look.of, name, plots) if look.of else None
        self._parts: list[tuple[Part, LocalTable]] = []
        for part in look.parts:
            say(part.title, "h2", "bare")
            self._parts.append((part, LocalTable(part.columns, part.empty)))
        with block("card"):
            say("Details", "h2")
            self._facts = Facts()

    async def open(self, entry: Entry) -> None:
        self.show(entry)
        if self._plots is not None:
            await self._plots.load()
        self._page.watch(self._path, REFRESH, self.show)

    def show(self, entry: Entry) -> None:
        text, tone = self._look.state(entry)
        self._chip.text = text
        self._chip.classes(replace=f"chip {tone}")
        self._why.text = self._look.why(entry)
        for name, show in self._numbers.items():
            self._tiles.show(name, *_pair(show(entry)))
        self._facts.show({name: show(entry) for name, show in self._details.items()})
        for part, table in self._parts:
            table.show(part.entries(entry)[:MOST_ROWS])

    async def reload(self) -> None:
        entry = await self._page.attempt(self._page.get(self._path))
        if entry is not None:
            self.show(entry)


def _pair(value: str | tuple[str, Tone]) -> tuple[str, str, Tone]:
    return (value, "", "") if isinstance(value, str) else (value[0], "", value[1])


def link_button(page: Page, label: str, icon: str, path: str, *, main: bool = False, **query: object) -> None:
    made = button(label, icon, lambda: page.go(path, **query))
    if main:
        made.props(remove="outline").props("unelevated color=primary")


def action_menu(page: Page, actions: Sequence[tuple[Action, After]]) -> None:
    """A menu of actions; without any it is not there."""
    if not actions:
        return

    async def chosen(action: Action, after: After) -> None:
        await ActionDialog(page, action, after).open()

    with ui.button("Actions", icon="expand_more").props("dense outline").classes("act"), ui.menu():
        for action, after in actions:
            ui.menu_item(f"{action.verb}…", lambda action=action, after=after: chosen(action, after))
