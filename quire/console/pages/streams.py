"""The streams, and one of them."""

from typing import Any

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Detail, FormDialog, Look, Part, action_menu
from quire.console.elements import Field, Form, Tone, button
from quire.console.page import Page
from quire.console.pages.queues import context_buttons, delete_action, list_page, send_button
from quire.console.tables import Column, Entry, columns_of
from quire.resources import PartitionStatus, StreamDetails, StreamGroup, StreamPin, StreamStatus


async def build_list(page: Page) -> None:
    columns = columns_of(StreamStatus, {"name": lambda stream: page.link("/stream", name=stream["name"])})
    await list_page(
        page, "Streams", "streams", columns, "stream", search="Search streams",
        filters={"nonempty": "With messages", "grouped": "With groups"}, empty="No stream.",
    )  # fmt: skip


async def build(page: Page) -> None:
    name = page.query.get("name", "")
    path = path_of("streams", name)
    stream, may = await page.get(path), await page.rights("stream", name)
    delete = delete_action("stream", name, "with the stream and its groups")
    with page.frame(name, "streams", crumbs=[("Streams", page.link("/streams"))]) as head:
        detail = Detail(page, _look(page, name, can_read="read" in may), path, name)
        with head:
            send_button(page, "stream", name, may)
            if "manage" in may:
                _partitions_button(page, path, detail)
                action_menu(page, [(delete, lambda: page.go("/streams"))])
            context_buttons(page, "stream", name)
        await detail.open(stream)


def _partitions_button(page: Page, path: str, detail: Detail) -> None:
    field = Field("count", "Partitions in all", "number", "More than now: partitions are never removed",
                  is_required=True)  # fmt: skip

    async def send(form: Form) -> dict[str, Any]:
        return await page.caller.call("POST", path + "/partitions", form.body())

    def opened() -> None:
        FormDialog(page, "More partitions", "Add partitions", [field], send, lambda _: detail.reload())

    button("Partitions", "add", opened)


def _partition_columns(page: Page, name: str, *, can_read: bool) -> list[Column]:
    def messages(part: Entry) -> str:
        return page.link("/messages", kind="stream", name=name, of=part["partition"])

    return columns_of(PartitionStatus, {"partition": messages} if can_read else {})


def _look(page: Page, name: str, *, can_read: bool) -> Look:
    groups = columns_of(StreamGroup, {"name": lambda group: page.link("/group", stream=name, name=group["name"])})
    return Look(
        StreamDetails, of="stream", state=_state,
        tiles={
            "Partitions": lambda stream: shown.number(len(stream["partitions"])),
            "Groups": lambda stream: shown.number(len(stream["groups"])),
        },
        parts=[
            Part("Partitions", _partition_columns(page, name, can_read=can_read), lambda stream: stream["partitions"]),
            Part("Consumer groups", groups, lambda stream: stream["groups"], "No group."),
            Part("Pins", columns_of(StreamPin), lambda stream: stream["pins"], "No pin."),
        ],
    )  # fmt: skip


def _state(stream: Entry) -> tuple[str, Tone]:
    return ("in use", "good") if stream["groups"] or stream["readers"] else ("no group", "")
