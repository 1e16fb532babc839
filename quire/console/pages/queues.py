"""The queues, and one of them; the columns of consumers and the buttons of destinations, wherever they are shown."""

from collections.abc import Collection, Sequence
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Action, Detail, FormDialog, Look, Part, action_menu, link_button
from quire.console.elements import Field, Form, Tone, button
from quire.console.page import Page
from quire.console.tables import Column, Entry, ServerTable, columns_of, state_column
from quire.resources import Consumer, QueueStatus


def create_button(page: Page, kind: str) -> None:
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

    button(f"New {kind}", "add", opened)


async def list_page(
    page: Page, title: str, name: str, columns: Sequence[Column], kind: str = "", **options: Any
) -> None:
    """The page with a list of the broker, and a button that makes one of a kind."""
    with page.frame(title, name) as head:
        if kind:
            with head:
                create_button(page, kind)
        await ServerTable(page, name, columns, **options).load()


def send_button(page: Page, kind: str, name: str, may: Collection[str]) -> None:
    if "write" in may:
        link_button(page, "Send", "send", "/send", kind=kind, name=name)


def delete_action(kind: str, name: str, what_goes: str) -> Action:
    effect, path = f"messages are removed for good, {what_goes}", path_of(f"{kind}s", name)
    return Action("Delete", f"{kind} {shown.text(name, 60)}", "DELETE", path, effect, query={"force": True})


def context_buttons(page: Page, kind: str, name: str) -> None:
    link_button(page, "Topology", "account_tree", "/topology", focus=f"{kind}://{name}")
    if page.may("monitor"):
        link_button(page, "Policies", "tune", "/policies", kind=kind, name=name)


FILTERS = {
    "attention": "Needs attention", "nonempty": "With messages", "unconsumed": "Messages, no consumer",
    "consumed": "With consumers", "paused": "Paused", "dead-letter": "Dead letter queues",
}  # fmt: skip


def state(queue: Entry) -> tuple[str, Tone]:
    if queue["paused"]:
        return "paused", "warn"
    if queue["producers_held"]:
        return "producers held", "bad"
    if queue["blocked"]:
        return f"waits: {shown.words(queue['blocked']['cause'])}", "warn"
    if queue["slow_consumers"]:
        return "slow consumers", "warn"
    if queue["depth"] and not queue["consumers"]:
        return "no consumer", "warn"
    return ("ready", "good") if queue["consumers"] else ("idle", "")


async def build_list(page: Page) -> None:
    columns = columns_of(QueueStatus, {"name": lambda queue: page.link("/queue", name=queue["name"])}, state=state)
    await list_page(
        page, "Queues", "queues", columns, "queue", filters=FILTERS, search="Search queues",
        empty="No queue. Sending to one creates it.",
    )  # fmt: skip


HARMLESS = {"nothing-waits", "no-pull", "stand-by"}  # causes that are as they should be


def consumer_columns(page: Page) -> list[Column]:
    """The columns: who it is, how much it has, and why it gets nothing now."""
    columns = columns_of(Consumer, {"connection": lambda one: page.link("/connections", search=one["connection"])})
    return [*columns[:2], state_column(_consumer_state, "waits"), *columns[2:]]


def _consumer_state(consumer: Entry) -> tuple[str, Tone]:
    if waits := consumer.get("waits"):
        return shown.text(waits["text"]), "" if waits["cause"] in HARMLESS else "warn"
    if consumer.get("slow_seconds") is not None:
        return "slow: no credit while messages wait", "warn"
    return "ready", "good"


SELECTION = (
    Field("selector", "Selector", hint="Empty: all messages. For example: priority > 4 AND region = 'EU'"),
    Field("limit", "At most", "number", "Empty: no limit; the oldest first"),
)


async def build(page: Page) -> None:
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
        QueueStatus,
        of="queue",
        state=state,
        why=_why,
        parts=[Part("Consumers", consumer_columns(page), lambda queue: queue["subscriptions"], "No consumer.")],
    )


def _why(queue: dict[str, Any]) -> str:
    parts = []
    if blocked := queue["blocked"]:
        parts.append(f"Messages wait: {shown.words(blocked['cause'])}, for {shown.span(blocked.get('age_seconds'))}.")
    parts += [
        f"A producer is held: {shown.words(held['cause'])}, for {shown.span(held['age_seconds'])}."
        for held in queue["producers_held"][:3]
    ]
    return " ".join(parts)


def _actions(name: str, path: str) -> list[Action]:
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
    def __init__(self, page: Page, path: str, queue: dict[str, Any], detail: Detail) -> None:
        self._page = page
        self._path = path
        self._detail = detail
        self._button = button("", "pause", self._pressed)
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
