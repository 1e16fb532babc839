"""The streams, and one of them."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.action import Action, FormDialog
from quire.console.broker_api import path_of
from quire.console.detail import Detail, Look, Part, action_menu, counted, link_button
from quire.console.elements import Tone
from quire.console.form import Field, Form
from quire.console.page import Page
from quire.console.pages.create import create_button
from quire.console.row_table import Column, Entry, count_column, rate_column, text_column
from quire.console.server_table import ServerTable


async def build_list(page: Page) -> None:
    """Build the list."""
    columns = [
        Column("name", "Name", lambda stream: shown.text(stream["name"]), is_text=True,
               link=lambda stream: page.link("/stream", name=stream["name"])),
        count_column("records", "Messages"),
        Column("bytes", "Size", lambda stream: shown.size(stream["bytes"])),
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
            page, "streams", columns, "/streams", "streams", search="Search streams",
            filters={"nonempty": "With messages", "grouped": "With groups"}, empty="No stream.",
        )  # fmt: skip
        await table.load()


async def build(page: Page) -> None:
    """Build the page of one stream."""
    name = page.query.get("name", "")
    path = path_of("streams", name)
    stream, may = await page.get(path), await page.rights("stream", name)
    delete = Action(
        "Delete", f"stream {shown.text(name, 60)}", "DELETE", path, query={"force": True},
        effect="messages are removed for good, with the stream and its groups",
    )  # fmt: skip
    with page.frame(name, "streams", crumbs=[("Streams", page.link("/streams"))]) as head:
        detail = Detail(page, _look(page, name, can_read="read" in may), path, name)
        with head:
            if "write" in may:
                link_button(page, "Send", "send", "/send", kind="stream", name=name)
            if "manage" in may:
                _partitions_button(page, path, detail)
                action_menu(page, [(delete, lambda: page.go("/streams"))])
            link_button(page, "Topology", "account_tree", "/topology", focus=f"stream://{name}")
            if page.may("monitor"):
                link_button(page, "Policies", "tune", "/policies", kind="stream", name=name)
        await detail.open(stream)


def _partitions_button(page: Page, path: str, detail: Detail) -> None:
    field = Field("count", "Partitions in all", "number", "More than now: partitions are never removed",
                  is_required=True)  # fmt: skip

    async def send(form: Form) -> dict[str, Any]:
        return await page.caller.call("POST", path + "/partitions", form.body())

    def opened() -> None:
        FormDialog(page, "More partitions", "Add partitions", [field], send, lambda _: detail.reload())

    ui.button("Partitions", icon="add", on_click=opened).props("dense outline").classes("act")


def _look(page: Page, name: str, *, can_read: bool) -> Look:
    def messages(part: Entry) -> str:
        return page.link("/messages", kind="stream", name=name, of=part["partition"])

    partitions = [
        Column("partition", "Partition", lambda part: shown.number(part["partition"]),
               link=messages if can_read else None),
        count_column("records", "Messages"),
        Column("bytes", "Size", lambda part: shown.size(part["bytes"])),
        count_column("earliest", "Earliest offset"),
        count_column("end", "End"),
        count_column("gaps", "Gaps"),
        Column("oldest", "Oldest, UTC", lambda part: shown.time(part["oldest_timestamp"])),
        Column("newest", "Newest, UTC", lambda part: shown.time(part["newest_timestamp"])),
    ]  # fmt: skip
    groups = [
        Column("name", "Group", lambda group: shown.text(group["name"]), is_text=True,
               link=lambda group: page.link("/group", stream=name, name=group["name"])),
        text_column("order", "Order"),
        count_column("members", "Members"),
        count_column("lag", "Lag"),
        count_column("in_flight", "In flight"),
        count_column("retries", "Retries"),
    ]  # fmt: skip
    pins = [
        text_column("name", "Pin"),
        Column("until", "Until, UTC", lambda pin: shown.time(pin["until"])),
    ]
    return Look(
        of="stream", state=_state,
        tiles={
            "Messages": counted("records", shown.number), "Size": counted("bytes", shown.size),
            "Appended": counted("appended", shown.number),
            "Partitions": lambda stream: shown.number(len(stream["partitions"])),
            "Groups": lambda stream: shown.number(len(stream["groups"])), "Readers": counted("readers", shown.number),
        },
        facts={"In memory": counted("resident_bytes", shown.size)} | {
            shown.words(key).capitalize(): lambda stream, key=key: shown.text(stream["policy"].get(key))
            for key in ("partition_key_header", "retention_time", "retention_bytes", "retention_groups_done",
                        "consume_timeout", "retry", "retry_maximum", "rebalance_strategy", "member_grace")
        },
        parts=[
            Part("Partitions", partitions, lambda stream: stream["partitions"]),
            Part("Consumer groups", groups, lambda stream: stream["groups"], "No group."),
            Part("Pins", pins, lambda stream: stream["pins"], "No pin."),
        ],
    )  # fmt: skip


def _state(stream: Entry) -> tuple[str, Tone]:
    return ("in use", "good") if stream["groups"] or stream["readers"] else ("no group", "")
