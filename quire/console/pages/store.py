"""The store, what runs in the background, the last events of the log, and the policies."""

from functools import partial
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.elements import Facts, Tiles, Tone, block, button, notice, say
from quire.console.page import Page
from quire.console.tables import Column, Entry, LocalTable, columns_of, value_column
from quire.resources import OperationStatus

REFRESH = 5.0

NEAR = 0.9  # from this part of its limit on, the size is shown as a trouble


async def build(page: Page) -> None:
    store, operations = await page.get("/store"), await page.get("/operations")
    with page.frame("Store", "store") as head:
        view = _Store(page)
        if page.may("operate"):
            with head:
                button("Verify", "fact_check", view.verify)
        view.show(store)
        view.show_operations(operations)
    page.watch("/store", REFRESH, view.show)
    page.watch("/operations", REFRESH, view.show_operations)


class _Store:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._failure = notice("", tone="bad")
        self._tiles = Tiles(["Messages", "File", "Spool", "Disk free"])
        with block("card"):
            self._facts = Facts()
        say("Running and recent operations", "h2", "bare")
        self._operations = LocalTable(_columns(), "None.", "id")
        if page.may("operate"):
            self._operations.row_actions(
                lambda one: {"Cancel": partial(_cancel, page)} if one["state"] == "running" else {}
            )

    def show(self, store: dict[str, Any]) -> None:
        self._failure.set_visibility(bool(store["error"]))
        if store["error"]:
            self._failure.clear()
            with self._failure:
                say(shown.text(store["error"], 500))
        messages, file = store["messages"], store["file_bytes"]
        near: Tone = "bad" if messages["used"] > NEAR * messages["limit"] else ""
        self._tiles.show("Messages", shown.size(messages["used"]), f"of {shown.size(messages['limit'])}", near)
        self._tiles.show("File", shown.size(file), f"{shown.size(store['free_bytes'])} of it free" if file else "")
        self._tiles.show("Spool", shown.size(store["spool"]["used"]), f"of {shown.size(store['spool']['limit'])}")
        disk = store["disks"][0] if store["disks"] else None
        limit = f"at least {shown.size(disk['limit'])}" if disk else ""
        self._tiles.show("Disk free", shown.size(disk["free"]) if disk else shown.UNKNOWN, limit)
        failures = store["failures"]
        self._facts.show({
            "URL": shown.text(store["url"]), "Format": str(store["format"]), "Synced": shown.text(store["sync"]),
            "Accepts writes": ("yes", "good") if store["writable"] else ("no", "bad"),
            "Commits": shown.number(store["commits"]),
            "Failed commits": (shown.number(failures), "bad" if failures else ""),
            "Lanes": shown.number(store["lanes"]),
            "Destinations": f"{shown.number(store['destinations'])} of {shown.number(store['destinations_limit'])}",
            "Durable subscriptions, groups":
                f"{shown.number(store['subscriptions'])} of {shown.number(store['subscriptions_limit'])}",
            "Last verified, UTC": _verified(store["last_verify"]),
        })  # fmt: skip

    def show_operations(self, answer: dict[str, Any]) -> None:
        self._operations.show(answer["operations"])

    async def verify(self) -> None:
        if await self._page.attempt(self._page.caller.call("POST", "/store/verify")) is not None:
            ui.notify("The verification runs", type="positive")
            answer = await self._page.attempt(self._page.get("/operations"))
            if answer is not None:
                self.show_operations(answer)


def _verified(verified: dict[str, Any] | None) -> tuple[str, Tone] | str:
    if verified is None:
        return "not since the start"
    findings = verified["findings"]
    told = f"{shown.number(findings)} findings" if findings else "no finding"
    return f"{shown.time(verified['at'])}, {told}", "bad" if findings else "good"


def _columns() -> list[Column]:
    tones: dict[str, Tone] = {"running": "", "done": "good", "failed": "bad", "cancelled": "warn"}
    state = Column(
        "state", "State", lambda one: one["state"], is_text=True, tone=lambda one: tones.get(one["state"], "")
    )
    return columns_of(OperationStatus, own={"state": state})


async def _cancel(page: Page, entry: Entry) -> None:
    if await page.attempt(page.caller.call("DELETE", path_of("operations", entry["id"]))) is not None:
        ui.notify("The operation stops at its next step", type="positive")


LOG_REFRESH = 2.0
LIMIT = 1000
LEVELS = ["debug", "info", "warning", "error"]
_TONES: dict[str, Tone] = {"warning": "warn", "error": "bad"}


async def build_log(page: Page) -> None:
    log = await page.get("/log", limit=LIMIT)
    with page.frame("Log", "log"):
        view = _Log(page)
        view.show(log)
    page.watch("/log", LOG_REFRESH, view.show, limit=LIMIT)


class _Log:
    MOST = 300  # how many events are shown

    def __init__(self, page: Page) -> None:
        self._page = page
        self._events: list[Entry] = []
        self._level, self._search = page.query.get("level", "debug"), page.query.get("search", "")
        with block("toolbar"):
            field = ui.input(placeholder="Search events", value=self._search, on_change=self._searched)
            field.props('dense outlined clearable debounce=300 aria-label="Search events"').classes("quire-search")
            level = self._level if self._level in LEVELS else "debug"
            select = ui.select({name: f"{name} and above" for name in LEVELS}, value=level, on_change=self._chosen)
            select.props('dense outlined options-dense aria-label="Level"')
            self._count = say("", classes="mute small")
        columns = [
            value_column("at", "Time, UTC", "time"),
            Column("level", "Level", lambda event: event["level"], is_text=True,
                   tone=lambda event: _TONES.get(event["level"], "")),
            value_column("event", "Event"),
            Column("text", "Text", lambda event: shown.body(event["text"][:1000]), is_text=True, wraps=True),
        ]  # fmt: skip
        self._table = LocalTable(columns, "No event.", "number")

    def show(self, log: dict[str, Any]) -> None:
        self._events = log["events"]
        self._filter()

    def _filter(self) -> None:
        least = LEVELS.index(self._level) if self._level in LEVELS else 0
        text = self._search.casefold()
        found = [
            event for event in reversed(self._events)
            if (event["level"] not in LEVELS or LEVELS.index(event["level"]) >= least)
            and text in f"{event['event']} {event['text']}".casefold()
        ]  # fmt: skip
        self._table.show(found[: self.MOST])
        self._count.text = f"{shown.number(len(found))} of the last {shown.number(len(self._events))}"

    def _searched(self, event: Any) -> None:
        self._search = event.value or ""
        self._page.remember(search=self._search)
        self._filter()

    def _chosen(self, event: Any) -> None:
        self._level = event.value
        self._page.remember(level=self._level)
        self._filter()


KINDS = ["queue", "topic", "stream"]
VALUES = [value_column("key", "Setting"), value_column("value", "Value"), value_column("origin", "From")]


async def build_policies(page: Page) -> None:
    kind, name = page.query.get("kind", "queue"), page.query.get("name", "")
    kind = kind if kind in KINDS else "queue"
    with page.frame("Policies", "policies"):
        with block("toolbar"):
            choice = ui.select(KINDS, value=kind).props('dense outlined options-dense aria-label="Kind"')
            field = ui.input(placeholder="Which policies apply to this name?", value=name)
            field.props('dense outlined clearable aria-label="Name"').classes("quire-search")

            def look() -> None:
                page.go("/policies", kind=choice.value, name=field.value)

            field.on("keydown.enter", look)
            button("Explain", "tune", look)
        if name:
            _show_one(await page.get(path_of("policies", kind, name)))
        else:
            _show_all(await page.get("/policies"))


def _show_one(answer: dict[str, Any]) -> None:
    say(f"What applies to {shown.text(answer['destination'], 100)}, the most specific first", "h2", "bare")
    entries = [
        value_column("destination", "Policy for"),
        value_column("origin", "From"),
        value_column("applies", "Decides", "other"),
        value_column("overridden", "Overridden by a more specific one", "other"),
    ]
    LocalTable(entries, "No policy names it: the defaults hold.", "destination").show(answer["entries"])
    say("The values", "h2", "bare")
    meaning = Column("text", "Meaning", lambda entry: shown.text(entry["text"]), is_text=True, wraps=True)
    LocalTable([*VALUES, meaning], "None.", "key").show(answer["values"])


def _show_all(answer: dict[str, Any]) -> None:
    say("Policies", "h2", "bare")
    entries = [
        value_column("destination", "Policy for"),
        value_column("origin", "From"),
        Column("values", "Sets", lambda entry: _settings(entry["values"]), is_text=True),
    ]
    LocalTable(entries, "No policy is set: the base holds for all destinations.", "destination").show(answer["entries"])
    say("The base, which holds where no policy says otherwise", "h2", "bare")
    LocalTable(VALUES, "None.", "key").show(answer["base"])


def _settings(values: Entry) -> str:
    return shown.text(", ".join([f"{key} = {value}" for key, value in values.items()]))
