"""Sending a message."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.elements import block, say
from quire.console.form import Field, Form
from quire.console.page import Page

KINDS = ("queue", "topic", "stream")

FIELDS = [
    Field("body", "Body", "area"),
    Field("body_encoding", "The body is", "choice", choices=("text", "base64"), value="text"),
    Field("headers", "Headers", "area", "One a line: name: value"),
    Field("priority", "Priority", "number", "0 to 9", value=4),
    Field("count", "How often", "number", value=1),
    Field("persistent", "Persistent: it survives the broker", "switch", value=True),
]


async def build(page: Page) -> None:
    """Build it."""
    kind, name = page.query.get("kind", "queue"), page.query.get("name", "")
    kind = kind if kind in KINDS else "queue"
    crumbs = [
        (f"{kind.capitalize()}s", page.link(f"/{kind}s")),
        (shown.text(name, 60), page.link(f"/{kind}", name=name)),
    ]
    with page.frame("Send a message", f"{kind}s", crumbs=crumbs), block("card send"):
        form = Form(FIELDS)

        async def send() -> None:
            button.disable()
            answer = await page.attempt(page.caller.call("POST", path_of(f"{kind}s", name, "messages"), _body(form)))
            button.enable()
            if answer is not None:
                text = f"{shown.number(answer['sent'])} sent to {kind} {shown.text(name, 60)}"
                ui.notify(text, type="positive")

        with block("end"):
            say("It is durable when the answer comes.", classes="mute small")
            block("space")
            button = ui.button("Send", icon="send", on_click=send).props("unelevated color=primary")


def _body(form: Form) -> dict[str, Any]:
    body = form.body()
    headers = {}
    for line in str(body.pop("headers", "")).splitlines():
        name, _, value = line.partition(":")
        if name.strip():
            headers[name.strip()] = value.strip()
    return {"body": "", **body, "headers": headers}
