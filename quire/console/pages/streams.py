"""The streams, and one of them."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Detail, FormDialog, Look, Part, action_menu, counted
from quire.console.elements import Field, Form, Tone
from quire.console.page import Page
from quire.console.pages.queues import context_buttons, create_button, delete_action, send_button
from quire.console.tables import (
    Column,
    Entry,
    ServerTable,
    count_column,
    rate_column,
    size_column,
    text_column,
    time_column,
)

POLICY = (
    "partition_key_header", "retention_time", "retention_bytes", "retention_groups_done", "consume_timeout", "retry",
    "retry_maximum", "rebalance_strategy", "member_grace",
)  # fmt: skip
"""What is shown of a stream's policy."""


async def build_list(page: Page) -> None:
    """Build the list."""
    columns = [
        Column("name", "Name", lambda stream: shown.text(stream["name"]), is_text=True,
               link=lambda stream: page.link("/stream", name=stream["name"])),
        count_column("records", "Messages"),
        size_column("bytes"),
        count_column("partitions", "Partitions"),
        count_column("groups", "Groups"),
        count_column("members", "Members"),
        rate_column("in_rate", "In"),
        rate_column("out_rate", "Out"),
        count_column("appended", "Appended"),
        count_column("readers", "Readers", shown_at_first=False, sorts=False),
        count_column("pins", "Pins", shown_at_first=False, sorts=False),
    ]  # fmt: skip
    with page.frame("Streams", "streams") as head:
        with head:
            create_button(page, "stream")
        table = ServerTable(
            page, "streams", columns, search="Search streams",
            filters={"nonempty": "With messages", "grouped": "With groups"}, empty="No stream.",
        )  # fmt: skip
        await table.load()


async def build(page: Page) -> None:
    """Build the page of one stream."""
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

    ui.button("Partitions", icon="add", on_click=opened).props("dense outline").classes("act")


def _partition_columns(page: Page, name: str, *, can_read: bool) -> list[Column]:
    def messages(part: Entry) -> str:
        return page.link("/messages", kind="stream", name=name, of=part["partition"])

    return [
        Column("partition", "Partition", lambda part: shown.number(part["partition"]),
               link=messages if can_read else None),
        count_column("records", "Messages"),
        size_column("bytes"),
        count_column("earliest", "Earliest offset"),
        count_column("end", "End"),
        count_column("gaps", "Gaps"),
        time_column("oldest", "Oldest, UTC", "oldest_timestamp"),
        time_column("newest", "Newest, UTC", "newest_timestamp"),
    ]  # fmt: skip


def _group_columns(page: Page, name: str) -> list[Column]:
    return [
        Column("name", "Group", lambda group: shown.text(group["name"]), is_text=True,
               link=lambda group: page.link("/group", stream=name, name=group["name"])),
        text_column("order", "Order"),
        count_column("members", "Members"),
        count_column("lag", "Lag"),
        count_column("in_flight", "In flight"),
        count_column("retries", "Retries"),
    ]  # fmt: skip


def _look(page: Page, name: str, *, can_read: bool) -> Look:
    pins = [text_column("name", "Pin"), time_column("until", "Until, UTC", "until")]
    return Look(
        of="stream", state=_state,
        tiles={
            "Messages": counted("records"), "Size": counted("bytes", shown.size), "Appended": counted("appended"),
            "Partitions": lambda stream: shown.number(len(stream["partitions"])),
            "Groups": lambda stream: shown.number(len(stream["groups"])), "Readers": counted("readers"),
        },
        facts={"In memory": counted("resident_bytes", shown.size)} | {
            shown.words(key).capitalize(): lambda stream, key=key: shown.text(stream["policy"].get(key))
            for key in POLICY
        },
        parts=[
            Part("Partitions", _partition_columns(page, name, can_read=can_read), lambda stream: stream["partitions"]),
            Part("Consumer groups", _group_columns(page, name), lambda stream: stream["groups"], "No group."),
            Part("Pins", pins, lambda stream: stream["pins"], "No pin."),
        ],
    )  # fmt: skip


def _state(stream: Entry) -> tuple[str, Tone]:
    return ("in use", "good") if stream["groups"] or stream["readers"] else ("no group", "")
