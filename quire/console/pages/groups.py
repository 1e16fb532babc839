"""The consumer groups of streams, and one of them: lag, partitions, members, retries; moving its progress."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Action, Detail, Dialog, FormDialog, Look, Part, action_menu, link_button
from quire.console.elements import Field, Form, Tone, button
from quire.console.page import Page
from quire.console.pages.queues import list_page
from quire.console.tables import Column, Entry, columns_of
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


class ResetDialog(Dialog):
    def __init__(self, page: Page, path: str, subject: str, detail: Detail) -> None:
        self._path = path
        self._detail = detail
        self._is_previewed = False
        super().__init__(page, f"Move {subject}", "Preview", FIELDS)
        self.dialog.open()

    async def _submit(self) -> None:
        dry_run = None if self._is_previewed else True
        call = self._page.caller.call("POST", self._path + "/reset", self.form.body(), dry_run=dry_run)
        effect = await self._page.attempt(call)
        if effect is None:
            return
        if self._is_previewed:
            self.dialog.close()
            ui.notify("The group was moved", type="positive")
            await self._detail.reload()
        else:
            self._is_previewed = True
            self._foretell(_told(effect), "Move the group", is_harm=bool(effect["skipped"] or effect["again"]))


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
    await list_page(
        page, "Consumer groups", "groups", columns_of(ConsumerGroupStatus, links, state=_state), search="Search groups",
        filters={"attention": "Needs attention", "lagging": "Lagging", "memberless": "Without members"},
        empty="No consumer group. A member that joins makes one.",
    )  # fmt: skip


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
                button("Move", "swap_horiz", lambda: ResetDialog(page, path, subject, detail))
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

    button("Clone", "content_copy", opened)


def _state(group: Entry) -> tuple[str, Tone]:
    if group["blocked"]:
        return f"waits: {shown.words(group['blocked']['cause'])}", "warn"
    if not group["connected"]:
        return "no member", "warn" if group["lag"] else ""
    return ("lags", "") if group["lag"] else ("up to date", "good")


def _look() -> Look:
    connection = Column("connection", "Connection", lambda one: shown.text(one["connection"] or "awaited"),
                        is_text=True, tone=lambda one: "" if one["connected"] else "warn")  # fmt: skip
    members = columns_of(GroupMemberInfo, own={"connection": connection})
    return Look(
        ConsumerGroupDetails, of="group", state=_state,
        parts=[
            Part("Partitions", columns_of(GroupPartitionStatus), lambda group: group["partition_states"]),
            Part("Members", members, lambda group: group["group_members"], "No member."),
            Part("Retries", columns_of(GroupRetries),
                 lambda group: [group["retry_lane"]] if group["retry_lane"] else [], "Failed messages wait in place."),
        ],
    )  # fmt: skip
