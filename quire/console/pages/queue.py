"""One queue: its numbers, its consumers and why they get nothing, and what may be done with it."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.action import Action
from quire.console.broker_api import path_of
from quire.console.detail import Detail, Look, Part, action_menu, counted, link_button
from quire.console.form import Field
from quire.console.page import Page
from quire.console.pages.consumer_columns import consumer_columns
from quire.console.pages.destination_buttons import context_buttons, delete_action, send_button
from quire.console.pages.queues import state

SELECTION = (
    Field("selector", "Selector", hint="Empty: all messages. For example: priority > 4 AND region = 'EU'"),
    Field("limit", "At most", "number", "Empty: no limit; the oldest first"),
)


async def build(page: Page) -> None:
    """Build it."""
    name = page.query.get("name", "")
    path = path_of("queues", name)
    queue, may = await page.get(path), await page.rights("queue", name)
    with page.frame(name, "queues", crumbs=[("Queues", page.link("/queues"))]) as head:
        detail = Detail(page, _look(page), path, name)
        with head:
            if "read" in may:
                link_button(page, "Messages", "mail", "/messages", main=True, kind="queue", name=name)
            send_button(page, "queue", name, may)
            if "manage" in may:
                _PauseButton(page, path, queue, detail)
                action_menu(page, [(action, _after(page, detail, action)) for action in _actions(name, path)])
            context_buttons(page, "queue", name)
        await detail.open(queue)


def _after(page: Page, detail: Detail, action: Action) -> Any:
    return (lambda: page.go("/queues")) if action.method == "DELETE" else detail.reload


def _look(page: Page) -> Look:
    return Look(
        of="queue", state=state, why=_why,
        tiles={
            "Messages": counted("depth"), "In flight": counted("in_flight"),
            "Rate in": counted("in_rate", shown.rate), "Rate out": counted("out_rate", shown.rate),
            "Oldest message": counted("oldest_message_age_seconds", shown.span),
            "Consumers": counted("consumers"),
        },
        facts={
            "Size": counted("bytes", shown.size), "In memory": counted("resident_bytes", shown.size),
            "Lanes": counted("lanes"), "Enqueued": counted("enqueued"),
            "Dequeued": counted("dequeued"), "Dispatched": counted("dispatched"),
            "Redelivered": counted("redelivered"), "Expired": counted("expired"),
            "Dead-lettered": lambda queue: (
                shown.number(queue["dead_lettered"]), "warn" if queue["dead_lettered"] else ""
            ),
            "Duplicates suppressed": counted("suppressed"),
            "Slow consumers": lambda queue: (
                shown.number(queue["slow_consumers"]), "warn" if queue["slow_consumers"] else ""
            ),
            "Message groups": counted("groups"),
            "Parked for consumers": counted("parked_for_consumers"),
            "Parked for groups": counted("parked_for_groups"),
            "Waiting for redelivery": counted("delayed"),
            "Next redelivery": counted("next_due", shown.time),
        },
        parts=[
            Part("Consumers", consumer_columns(page, with_destination=False), lambda queue: queue["subscriptions"],
                 "No consumer.")
        ],
    )  # fmt: skip


def _why(queue: dict[str, Any]) -> str:
    """Why messages or producers wait, in words."""
    parts = []
    if blocked := queue["blocked"]:
        parts.append(f"Messages wait: {shown.words(blocked['cause'])}, for {shown.span(blocked.get('age_seconds'))}.")
    parts += [
        f"A producer is held: {shown.words(held['cause'])}, for {shown.span(held['age_seconds'])}."
        for held in queue["producers_held"][:3]
    ]
    return " ".join(parts)


def _actions(name: str, path: str) -> list[Action]:
    """What goes in two steps."""
    subject = f"queue {shown.text(name, 60)}"
    to = Field("to", "To", hint="A queue, or topic://NAME", is_required=True)
    back = Field("to", "To", hint="Empty: the destination that each came from")
    rate = Field("rate", "Messages a second", "number", "Empty: as fast as possible")
    return [
        Action("Move", f"messages of {subject}", "POST", path + "/move", "messages move", fields=(to, *SELECTION)),
        Action("Copy", f"messages of {subject}", "POST", path + "/copy", "messages are copied",
               fields=(to, *SELECTION)),
        Action("Redrive", f"dead letters of {subject}", "POST", path + "/redrive",
               "dead letters go back to where they came from", fields=(back, *SELECTION, rate)),
        Action("Purge", subject, "POST", path + "/purge", "messages are removed for good; those in flight stay",
               fields=SELECTION),
        delete_action("queue", name, "and the queue with them"),
    ]  # fmt: skip


class _PauseButton:
    """Pauses the deliveries of a queue, or resumes them."""

    def __init__(self, page: Page, path: str, queue: dict[str, Any], detail: Detail) -> None:
        self._page = page
        self._path = path
        self._detail = detail
        self._button = ui.button("", on_click=self._pressed).props("dense outline").classes("act")
        self._show(queue)

    def _show(self, queue: dict[str, Any]) -> None:
        self._is_paused = queue["paused"]
        self._button.text = "Resume" if self._is_paused else "Pause"
        self._button.props(f"icon={'play_arrow' if self._is_paused else 'pause'}")

    async def _pressed(self) -> None:
        verb = "resume" if self._is_paused else "pause"
        queue = await self._page.attempt(self._page.caller.call("POST", f"{self._path}/{verb}"))
        if queue is not None:
            ui.notify(f"Deliveries are {verb}d", type="positive")
            self._show(queue)
            await self._detail.reload()
