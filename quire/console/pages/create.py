"""Making a destination."""

from typing import Any

from nicegui import ui

from quire.console.action import FormDialog
from quire.console.broker_api import path_of
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
