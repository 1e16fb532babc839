"""Moving the progress of a consumer group: first the effect, then the move."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.detail import Detail
from quire.console.elements import block, notice, say
from quire.console.form import Field, Form
from quire.console.page import Page

FIELDS = [
    Field("to", "To", hint="earliest, latest, ago=30m, timestamp=…, or an offset", value="latest", is_required=True),
    Field("partition", "Partition", "number", "Empty: all"),
]


class ResetDialog:
    """Asks where to move a group, shows what becomes of messages, and moves it."""

    def __init__(self, page: Page, path: str, subject: str, detail: Detail) -> None:
        self._page = page
        self._path = path
        self._detail = detail
        self._is_previewed = False
        with page.client, ui.dialog() as self._dialog, ui.card().classes("dialog"):
            say(f"Move {subject}", "h2")
            self._form = Form(FIELDS)
            self._told = block("").props('aria-live="polite"')
            with block("end"):
                ui.button("Cancel", on_click=self._dialog.close).props("flat color=grey-7")
                self._go = ui.button("Preview", on_click=self._proceed).props("unelevated color=primary")
        self._dialog.on("hide", self._dialog.delete)
        self._dialog.open()

    async def _proceed(self) -> None:
        self._go.disable()
        call = self._page.caller.call(
            "POST", self._path + "/reset", self._form.body(), dry_run=None if self._is_previewed else True
        )
        effect = await self._page.attempt(call)
        self._go.enable()
        if effect is None:
            return
        if self._is_previewed:
            self._dialog.close()
            ui.notify("The group was moved", type="positive")
            await self._detail.reload()
            return
        self._is_previewed = True
        self._form.lock()
        with self._told:
            notice(_told(effect), tone="bad" if effect["skipped"] or effect["again"] else "")
        self._go.text = "Move the group"
        self._go.props("color=negative")


def _told(effect: dict[str, Any]) -> str:
    return (
        f"{shown.number(effect['again'])} finished messages are delivered again, {shown.number(effect['skipped'])} "
        f"unfinished ones are skipped, {shown.number(effect['in_flight'])} in flight are taken from members, "
        f"{shown.number(effect['retries_dropped'])} retries are dropped."
    )
