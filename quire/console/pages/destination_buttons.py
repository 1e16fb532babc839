"""The buttons of queues, topics and streams: what is the same for all three."""

from collections.abc import Collection
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.action import Action, FormDialog
from quire.console.broker_api import path_of
from quire.console.detail import link_button
from quire.console.form import Field, Form
from quire.console.page import Page


def create_button(page: Page, kind: str) -> None:
    """A button that makes a queue, a topic or a stream, and goes to it."""
    if not page.may_create():
        return
    fields = [Field("name", "Name", is_required=True)]
    if kind == "stream":
        fields.append(Field("partitions", "Partitions", "number", "Empty: as the policy says"))

    async def create(form: Form) -> dict[str, Any]:
        body = {"partitions": int(form.value("partitions"))} if kind == "stream" and form.value("partitions") else None
        return await page.caller.call("PUT", path_of(f"{kind}s", form.value("name")), body)

    def opened() -> None:
        FormDialog(page, f"New {kind}", "Create", fields, create, lambda made: page.go(f"/{kind}", name=made["name"]))

    ui.button(f"New {kind}", icon="add", on_click=opened).props("dense outline").classes("act")


def send_button(page: Page, kind: str, name: str, may: Collection[str]) -> None:
    """A button to the page that sends to the destination, for a user who may."""
    if "write" in may:
        link_button(page, "Send", "send", "/send", kind=kind, name=name)


def delete_action(kind: str, name: str, what_goes: str) -> Action:
    """Deletes the destination, by force."""
    effect, path = f"messages are removed for good, {what_goes}", path_of(f"{kind}s", name)
    return Action("Delete", f"{kind} {shown.text(name, 60)}", "DELETE", path, effect, query={"force": True})


def context_buttons(page: Page, kind: str, name: str) -> None:
    """Buttons to the destination's place in the topology, and to its policies."""
    link_button(page, "Topology", "account_tree", "/topology", focus=f"{kind}://{name}")
    if page.may("monitor"):
        link_button(page, "Policies", "tune", "/policies", kind=kind, name=name)
