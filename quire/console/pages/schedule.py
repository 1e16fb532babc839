"""The scheduled messages: what the broker sends later."""

from functools import partial

from nicegui import ui

from quire.console import shown
from quire.console.action import Action
from quire.console.broker_api import path_of
from quire.console.confirm import confirm
from quire.console.cursor_table import CursorTable
from quire.console.detail import action_menu
from quire.console.links import destination_link
from quire.console.page import Page
from quire.console.row_table import Column, Entry, count_column, size_column, text_column


async def build(page: Page) -> None:
    """Build it."""
    columns = [
        text_column("id", "Id"),
        Column("destination", "Destination", lambda one: shown.text(one["destination"]), is_text=True,
               link=lambda one: destination_link(page, one["destination"])),
        Column("due", "Due, UTC", lambda one: shown.time(one["due"]), is_text=True),
        Column("repeats", "Repeats left", lambda one: "no end" if one["left"] < 0 else shown.number(one["left"])),
        Column("period", "Every", lambda one: shown.span(one["period"] / 1000) if one["period"] else shown.UNKNOWN),
        text_column("cron", "Cron"),
        count_column("priority", "Priority"),
        size_column("size"),
    ]  # fmt: skip
    cancel_all = Action("Cancel", "all scheduled messages", "DELETE", "/schedule",
                        "scheduled messages are never sent")  # fmt: skip
    with page.frame("Schedule", "schedule") as head:
        table = CursorTable(page, columns, "/schedule", "messages", "Nothing is scheduled.")
        if page.may("operate"):
            with head:
                action_menu(page, [(cancel_all, table.reload)])
            table.row_actions(lambda entry: {"Cancel": partial(_cancel, page, table)})
        await table.load()


async def _cancel(page: Page, table: CursorTable, entry: Entry) -> None:
    text = f"It is not sent to {shown.text(entry['destination'], 80)}, nor are its repeats."
    if not await confirm(f"Cancel scheduled message {shown.text(entry['id'], 80)}", text, "Cancel it"):
        return
    if await page.attempt(page.caller.call("DELETE", path_of("schedule", entry["id"]))) is not None:
        ui.notify("The scheduled message was cancelled", type="positive")
        await table.reload()
