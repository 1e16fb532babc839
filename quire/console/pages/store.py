"""The store: its space, its limits, whether it accepts writes, its verification; and what runs in the background."""

from functools import partial
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.elements import Facts, Tiles, Tone, block, notice, say
from quire.console.page import Page
from quire.console.row_table import Column, Entry, LocalTable, count_column, text_column

REFRESH = 5.0

NEAR = 0.9
"""From this part of its limit on, the size is shown as a trouble."""

FACTS = [
    "URL", "Format", "Synced", "Accepts writes", "Commits", "Failed commits", "Lanes", "Destinations",
    "Durable subscriptions, groups", "Last verified, UTC",
]  # fmt: skip


async def build(page: Page) -> None:
    """Build it."""
    store, operations = await page.get("/store"), await page.get("/operations")
    with page.frame("Store", "store") as head:
        view = _Store(page)
        if page.may("operate"):
            with head:
                ui.button("Verify", icon="fact_check", on_click=view.verify).props("dense outline").classes("act")
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
            self._facts = Facts(FACTS)
        say("Running and recent operations", "h2", "bare")
        self._operations = LocalTable(_columns(), "None.", "id")
        if page.may("operate"):
            self._operations.row_actions(
                lambda one: {"Cancel": partial(_cancel, page)} if one["state"] == "running" else {}
            )

    def show(self, store: dict[str, Any]) -> None:
        """Show how it is now."""
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
        """Show what runs in the background."""
        self._operations.show(answer["operations"])

    async def verify(self) -> None:
        """Have the store verified, beside the running broker."""
        if await self._page.attempt(self._page.caller.call("POST", "/store/verify")) is not None:
            ui.notify("The verification runs", type="positive")
            answer = await self._page.attempt(self._page.get("/operations"))
            if answer is not None:
                self.show_operations(answer)


def _verified(verified: dict[str, Any] | None) -> tuple[str, Tone] | str:
    """When the store was verified last, and what was found."""
    if verified is None:
        return "not since the start"
    findings = verified["findings"]
    told = f"{shown.number(findings)} findings" if findings else "no finding"
    return f"{shown.time(verified['at'])}, {told}", "bad" if findings else "good"


def _columns() -> list[Column]:
    tones: dict[str, Tone] = {"running": "", "done": "good", "failed": "bad", "cancelled": "warn"}
    return [
        text_column("action", "Operation"),
        text_column("target", "Of"),
        text_column("by", "By"),
        Column("state", "State", lambda one: one["state"], is_text=True, tone=lambda one: tones.get(one["state"], "")),
        count_column("done", "Done"),
        count_column("of", "Of"),
        Column("started", "Began, UTC", lambda one: shown.time(one["started_at"]), is_text=True),
        Column("ended", "Ended, UTC", lambda one: shown.time(one["ended_at"]), is_text=True),
        text_column("error", "Error"),
    ]


async def _cancel(page: Page, entry: Entry) -> None:
    if await page.attempt(page.caller.call("DELETE", path_of("operations", entry["id"]))) is not None:
        ui.notify("The operation stops at its next step", type="positive")
