"""The consumer groups of streams, and one of them: lag, partitions, members, retries; moving its progress."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Action, Detail, FormDialog, Look, Part, action_menu, link_button
from quire.console.elements import Field, Form, Tone, block, notice, say
from quire.console.page import Page
from quire.console.tables import (
    Column,
    Entry,
    ServerTable,
    columns_of,
)
from quire.resources import (
    ConsumerGroupDetails,
    ConsumerGroupStatus,
    GroupMemberInfo,
    GroupPartitionStatus,
    GroupRetries,
)

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


async def build_list(page: Page) -> None:
    links = {
        "stream": lambda group: page.link("/stream", name=group["stream"]),
        "name": lambda group: page.link("/group", stream=group["stream"], name=group["name"]),
    }
    columns = columns_of(ConsumerGroupStatus, links, state=_state)
    with page.frame("Consumer groups", "groups"):
        table = ServerTable(
            page, "groups", columns, search="Search groups",
            filters={"attention": "Needs attention", "lagging": "Lagging", "memberless": "Without members"},
            empty="No consumer group. A member that joins makes one.",
        )  # fmt: skip
        await table.load()


async def build(page: Page) -> None:
    stream, name = page.query.get("stream", ""), page.query.get("name", "")
    path = path_of("groups", stream, name)
    group, may = await page.get(path), await page.rights("stream", stream)
    subject = f"group {shown.text(name, 60)} of stream {shown.text(stream, 60)}"
    delete = Action("Delete", subject, "DELETE", path, "unfinished messages are given up, and the group ends",
                    query={"force": True})  # fmt: skip
    with page.frame(name, "groups", crumbs=[("Consumer groups", page.link("/groups"))]) as head:
        detail = Detail(page, _look(), path, f"{stream}/{name}")
        with head:
            link_button(page, "Stream", "waves", "/stream", name=stream)
            if "manage" in may:
                ui.button("Move", icon="swap_horiz", on_click=lambda: ResetDialog(page, path, subject, detail)).props(
                    "dense outline"
                ).classes("act")
                _clone_button(page, path, stream)
                action_menu(page, [(delete, lambda: page.go("/groups"))])
        await detail.open(group)


def _clone_button(page: Page, path: str, stream: str) -> None:
    field = Field("to", "Name of the new group", is_required=True)

    async def send(form: Form) -> dict[str, Any]:
        await page.caller.call("POST", path + "/clone", form.body())
        return form.body()

    def opened() -> None:
        FormDialog(page, "Clone the group", "Clone", [field], send,
                   lambda made: page.go("/group", stream=stream, name=made["to"]))  # fmt: skip

    ui.button("Clone", icon="content_copy", on_click=opened).props("dense outline").classes("act")


def _state(group: Entry) -> tuple[str, Tone]:
    if group["blocked"]:
        return f"waits: {shown.words(group['blocked']['cause'])}", "warn"
    if not group["connected"]:
        return "no member", "warn" if group["lag"] else ""
    return ("lags", "") if group["lag"] else ("up to date", "good")


def _member_columns() -> list[Column]:
    connection = Column("connection", "Connection", lambda one: shown.text(one["connection"] or "awaited"),
                        is_text=True, tone=lambda one: "" if one["connected"] else "warn")  # fmt: skip
    return columns_of(GroupMemberInfo, own={"connection": connection})


def _look() -> Look:
    return Look(
        ConsumerGroupDetails, of="group", state=_state,
        parts=[
            Part("Partitions", columns_of(GroupPartitionStatus), lambda group: group["partition_states"]),
            Part("Members", _member_columns(), lambda group: group["group_members"], "No member."),
            Part("Retries", columns_of(GroupRetries),
                 lambda group: [group["retry_lane"]] if group["retry_lane"] else [], "Failed messages wait in place."),
        ],
    )  # fmt: skip
