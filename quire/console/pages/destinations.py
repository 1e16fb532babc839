"""The queues, topics, durable subscriptions, streams and consumer groups, and one of each."""

from collections.abc import Collection, Sequence
from typing import Any

from nicegui import ui

from quire import resources
from quire.console import shown
from quire.console.detail import Action, Detail, Dialog, FormDialog, Look, Part, action_menu, link_button
from quire.console.elements import Field, Form, Tone, button
from quire.console.page import Page
from quire.console.session import path_of
from quire.console.tables import Column, Entry, ServerTable, columns_of, state_column

# Queues, and what other destinations have too.


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


def _queue_state(queue: Entry) -> tuple[str, Tone]:
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


async def build_queues(page: Page) -> None:
    columns = columns_of(
        resources.QueueStatus, {"name": lambda queue: page.link("/queue", name=queue["name"])}, state=_queue_state
    )
    await list_page(
        page, "Queues", "queues", columns, "queue", filters=FILTERS, search="Search queues",
        empty="No queue. Sending to one creates it.",
    )  # fmt: skip


HARMLESS = {"nothing-waits", "no-pull", "stand-by"}  # causes that are as they should be


def consumer_columns(page: Page) -> list[Column]:
    """The columns: who it is, how much it has, and why it gets nothing now."""
    columns = columns_of(
        resources.Consumer, {"connection": lambda one: page.link("/connections", search=one["connection"])}
    )
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


async def build_queue(page: Page) -> None:
    name = page.query.get("name", "")
    path = path_of("queues", name)
    queue, may = await page.get(path), await page.rights("queue", name)
    with page.frame(name, "queues", crumbs=[("Queues", page.link("/queues"))]) as head:
        detail = Detail(page, _queue_look(page), path, name)
        with head:
            if "read" in may:
                link_button(page, "Messages", "mail", "/messages", main=True, kind="queue", name=name)
            send_button(page, "queue", name, may)
            if "manage" in may:
                _PauseButton(page, path, queue, detail)
                action_menu(page, [(action, _after(page, detail, action)) for action in _queue_actions(name, path)])
            context_buttons(page, "queue", name)
        await detail.open(queue)


def _after(page: Page, detail: Detail, action: Action) -> Any:
    return (lambda: page.go("/queues")) if action.method == "DELETE" else detail.reload


def _queue_look(page: Page) -> Look:
    return Look(
        resources.QueueStatus,
        of="queue",
        state=_queue_state,
        why=_queue_why,
        parts=[Part("Consumers", consumer_columns(page), lambda queue: queue["subscriptions"], "No consumer.")],
    )


def _queue_why(queue: dict[str, Any]) -> str:
    parts = []
    if blocked := queue["blocked"]:
        parts.append(f"Messages wait: {shown.words(blocked['cause'])}, for {shown.span(blocked.get('age_seconds'))}.")
    parts += [
        f"A producer is held: {shown.words(held['cause'])}, for {shown.span(held['age_seconds'])}."
        for held in queue["producers_held"][:3]
    ]
    return " ".join(parts)


def _queue_actions(name: str, path: str) -> list[Action]:
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


# Topics and durable subscriptions.


async def build_topics(page: Page) -> None:
    links = {"name": lambda topic: page.link("/topic", name=topic["name"])}
    columns = columns_of(resources.TopicStatus, links, state=_topic_state)
    await list_page(
        page, "Topics", "topics", columns, "topic", search="Search topics",
        filters={"nonempty": "With stored messages", "consumed": "With consumers"},
        empty="No topic. Subscribing or sending to one creates it.",
    )  # fmt: skip


async def build_topic(page: Page) -> None:
    name = page.query.get("name", "")
    path = path_of("topics", name)
    topic, may = await page.get(path), await page.rights("topic", name)
    delete = delete_action("topic", name, "with the topic and its durable subscriptions")
    with page.frame(name, "topics", crumbs=[("Topics", page.link("/topics"))]) as head:
        detail = Detail(page, _topic_look(page), path, name)
        with head:
            send_button(page, "topic", name, may)
            if "manage" in may:
                action_menu(page, [(delete, lambda: page.go("/topics"))])
            context_buttons(page, "topic", name)
        await detail.open(topic)


def _topic_state(topic: Entry) -> tuple[str, Tone]:
    if topic["producers_held"]:
        return "producers held", "bad"
    if topic["slow_consumers"]:
        return "slow consumers", "warn"
    return ("ready", "good") if topic["consumers"] else ("no consumer", "")


def _subscription(page: Page, subscription: Entry) -> str:
    if subscription["name"] is None:
        return page.link("/connections", search=subscription["connection"])
    return page.link("/durable", client=subscription["client_id"], name=subscription["name"])


def _topic_look(page: Page) -> Look:
    own = {
        "name": Column("name", "Subscription", lambda one: shown.text(one["name"] or one["id"]), is_text=True,
                       link=lambda one: _subscription(page, one)),
        "connection": Column("connection", "Connection", lambda one: shown.text(one["connection"] or "offline"),
                             is_text=True),
    }  # fmt: skip
    columns = columns_of(resources.TopicSubscriptionStatus, own=own)
    return Look(
        resources.TopicStatus, of="topic", state=_topic_state,
        parts=[Part("Subscriptions", columns, lambda topic: topic["subscriptions"], "No subscription.")],
    )  # fmt: skip


async def build_durables(page: Page) -> None:
    links = {
        "name": lambda durable: page.link("/durable", client=durable["client_id"], name=durable["name"]),
        "topic": lambda durable: page.link("/topic", name=durable["topic"]),
    }
    columns = columns_of(resources.DurableStatus, links, state=_durable_state)
    await list_page(
        page, "Durable subscriptions", "durables", columns, search="Search subscriptions",
        filters={"attention": "Needs attention", "nonempty": "With a backlog", "offline": "Offline"},
        empty="No durable subscription. A consumer with a client id makes one.",
    )  # fmt: skip


async def build_durable(page: Page) -> None:
    client, name = page.query.get("client", ""), page.query.get("name", "")
    path = path_of("durables", client, name)
    durable = await page.get(path)
    may = await page.rights("topic", durable["topic"])
    subject = f"durable subscription {shown.text(name, 60)} of {shown.text(client, 60)}"
    purge = Action("Purge", subject, "POST", path + "/purge", "messages of it are finished; those in flight stay",
                   fields=SELECTION)  # fmt: skip
    delete = Action("Delete", subject, "DELETE", path, "messages are given up, and the subscription ends",
                    query={"force": True})  # fmt: skip
    with page.frame(name, "durables", crumbs=[("Durable subscriptions", page.link("/durables"))]) as head:
        detail = Detail(page, _durable_look(page), path, f"{client}/{name}")
        with head:
            if "read" in may:
                link_button(page, "Messages", "mail", "/messages", main=True, kind="durable", of=client, name=name)
            if "manage" in may:
                action_menu(page, [(purge, detail.reload), (delete, lambda: page.go("/durables"))])
            link_button(page, "Topic", "campaign", "/topic", name=durable["topic"])
        await detail.open(durable)


def _durable_state(durable: Entry) -> tuple[str, Tone]:
    if durable["offline_seconds"] is not None:
        return "offline", "warn" if durable["depth"] else ""
    if durable["blocked"]:
        return f"waits: {shown.words(durable['blocked']['cause'])}", "warn"
    return "ready", "good"


def _durable_look(page: Page) -> Look:
    return Look(
        resources.DurableStatus,
        of="durable",
        state=_durable_state,
        parts=[Part("Consumer", consumer_columns(page), lambda durable: durable["consumers"], "Offline.")],
    )


# Streams.


async def build_streams(page: Page) -> None:
    columns = columns_of(resources.StreamStatus, {"name": lambda stream: page.link("/stream", name=stream["name"])})
    await list_page(
        page, "Streams", "streams", columns, "stream", search="Search streams",
        filters={"nonempty": "With messages", "grouped": "With groups"}, empty="No stream.",
    )  # fmt: skip


async def build_stream(page: Page) -> None:
    name = page.query.get("name", "")
    path = path_of("streams", name)
    stream, may = await page.get(path), await page.rights("stream", name)
    delete = delete_action("stream", name, "with the stream and its groups")
    with page.frame(name, "streams", crumbs=[("Streams", page.link("/streams"))]) as head:
        detail = Detail(page, _stream_look(page, name, can_read="read" in may), path, name)
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

    return columns_of(resources.PartitionStatus, {"partition": messages} if can_read else {})


def _stream_look(page: Page, name: str, *, can_read: bool) -> Look:
    groups = columns_of(
        resources.StreamGroup, {"name": lambda group: page.link("/group", stream=name, name=group["name"])}
    )
    return Look(
        resources.StreamDetails, of="stream", state=_stream_state,
        tiles={
            "Partitions": lambda stream: shown.number(len(stream["partitions"])),
            "Groups": lambda stream: shown.number(len(stream["groups"])),
        },
        parts=[
            Part("Partitions", _partition_columns(page, name, can_read=can_read), lambda stream: stream["partitions"]),
            Part("Consumer groups", groups, lambda stream: stream["groups"], "No group."),
            Part("Pins", columns_of(resources.StreamPin), lambda stream: stream["pins"], "No pin."),
        ],
    )  # fmt: skip


def _stream_state(stream: Entry) -> tuple[str, Tone]:
    return ("in use", "good") if stream["groups"] or stream["readers"] else ("no group", "")


# Consumer groups.

RESET_FIELDS = [
    Field("to", "To", hint="earliest, latest, ago=30m, timestamp=…, or an offset", value="latest", is_required=True),
    Field("partition", "Partition", "number", "Empty: all"),
]


class ResetDialog(Dialog):
    def __init__(self, page: Page, path: str, subject: str, detail: Detail) -> None:
        self._path = path
        self._detail = detail
        self._is_previewed = False
        super().__init__(page, f"Move {subject}", "Preview", RESET_FIELDS)
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


async def build_groups(page: Page) -> None:
    links = {
        "stream": lambda group: page.link("/stream", name=group["stream"]),
        "name": lambda group: page.link("/group", stream=group["stream"], name=group["name"]),
    }
    columns = columns_of(resources.ConsumerGroupStatus, links, state=_group_state)
    await list_page(
        page, "Consumer groups", "groups", columns, search="Search groups",
        filters={"attention": "Needs attention", "lagging": "Lagging", "memberless": "Without members"},
        empty="No consumer group. A member that joins makes one.",
    )  # fmt: skip


async def build_group(page: Page) -> None:
    stream, name = page.query.get("stream", ""), page.query.get("name", "")
    path = path_of("groups", stream, name)
    group, may = await page.get(path), await page.rights("stream", stream)
    subject = f"group {shown.text(name, 60)} of stream {shown.text(stream, 60)}"
    delete = Action("Delete", subject, "DELETE", path, "unfinished messages are given up, and the group ends",
                    query={"force": True})  # fmt: skip
    with page.frame(name, "groups", crumbs=[("Consumer groups", page.link("/groups"))]) as head:
        detail = Detail(page, _group_look(), path, f"{stream}/{name}")
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


def _group_state(group: Entry) -> tuple[str, Tone]:
    if group["blocked"]:
        return f"waits: {shown.words(group['blocked']['cause'])}", "warn"
    if not group["connected"]:
        return "no member", "warn" if group["lag"] else ""
    return ("lags", "") if group["lag"] else ("up to date", "good")


def _group_look() -> Look:
    connection = Column("connection", "Connection", lambda one: shown.text(one["connection"] or "awaited"),
                        is_text=True, tone=lambda one: "" if one["connected"] else "warn")  # fmt: skip
    members = columns_of(resources.GroupMemberInfo, own={"connection": connection})
    return Look(
        resources.ConsumerGroupDetails, of="group", state=_group_state,
        parts=[
            Part("Partitions", columns_of(resources.GroupPartitionStatus), lambda group: group["partition_states"]),
            Part("Members", members, lambda group: group["group_members"], "No member."),
            Part("Retries", columns_of(resources.GroupRetries),
                 lambda group: [group["retry_lane"]] if group["retry_lane"] else [], "Failed messages wait in place."),
        ],
    )  # fmt: skip
