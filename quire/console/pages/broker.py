"""The broker as a whole: overview, topology; store, operations, log, policies; connections, schedule, transactions."""

from functools import partial
from typing import Any

from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from quire.console import shown
from quire.console.detail import PLOTS, Action, action_menu, link_button
from quire.console.elements import Facts, Tiles, Tone, block, button, confirm, notice, say
from quire.console.page import Page, destination_link, subject_link
from quire.console.pages.destinations import consumer_columns
from quire.console.plot import Plots, sankey
from quire.console.session import path_of
from quire.console.tables import Column, CursorTable, Entry, LocalTable, ServerTable, Verb, columns_of, value_column
from quire.resources import ConnectedConsumer, Connection, HeldProducer, OperationStatus, Prepared, Scheduled

OVERVIEW_REFRESH = 2.0  # how often the numbers are asked for, in seconds
NEAR = 0.9  # from this part of a limit on, its use is shown as a trouble

COUNTS = {
    "queues": "Queues", "topics": "Topics", "streams": "Streams", "durables": "Durable subscriptions",
    "groups": "Consumer groups", "scheduled": "Scheduled messages", "prepared": "Prepared transactions",
    "temporaries": "Temporary destinations",
}  # fmt: skip


async def build_overview(page: Page) -> None:
    """Build it. Who may not see the broker as a whole begins with the queues."""
    if not page.may("monitor"):
        page.go("/queues")
        return
    overview = await page.get("/overview")
    with page.frame(overview["name"], "overview"):
        view = _Overview(page)
        view.show(overview)
        await view.plots.load()
    page.watch("/overview", OVERVIEW_REFRESH, view.show)


class _Overview:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._told: list[dict[str, Any]] | None = None
        self.tiles = Tiles(["Rate in", "Rate out", "Messages", "Oldest message", "Connections", "Memory", "Store"])
        with block("card").props('aria-live="polite"'):
            say("Attention", "h2")
            self.attention = block("")
        self.plots = Plots(page, "broker", None, PLOTS)
        self.held_title = say("Producers held", "h2", "bare")
        self.held = LocalTable(columns_of(HeldProducer), "None.")
        with block("card"):
            say("Broker", "h2")
            self.facts = Facts()

    def show(self, now: dict[str, Any]) -> None:
        tiles, oldest = self.tiles, now["oldest"]
        tiles.show("Rate in", shown.rate(now["in_rate"]))
        tiles.show("Rate out", shown.rate(now["out_rate"]))
        tiles.show("Messages", shown.number(now["depth"]), f"{shown.number(now['in_flight'])} in flight")
        age = shown.span(oldest["age_seconds"]) if oldest else shown.UNKNOWN
        tiles.show("Oldest message", age, f"{oldest['kind']} {shown.text(oldest['name'], 40)}" if oldest else "")
        held = now["held"]
        note = f"{held} held" if held else f"{shown.number(now['consumers'])} consumers"
        tiles.show("Connections", shown.number(now["connections"]), note, "bad" if held else "")
        for name, use in (("Memory", now["memory"]), ("Store", now["store"])):
            tiles.show(name, shown.size(use["used"]), f"of {shown.size(use['limit'])}", _use_tone(use))
        self._show_attention(now["attention"], now["attention_left_out"])
        self.held_title.set_visibility(bool(held))
        self.held.card.set_visibility(bool(held))
        self.held.show(now["producers_held"])
        self.facts.show(_overview_facts(now))

    def _show_attention(self, entries: list[dict[str, Any]], left_out: int) -> None:
        if entries == self._told:
            return
        self._told = entries
        self.attention.clear()
        with self.attention:
            if not entries:
                say("Nothing needs attention.", classes="mute")
            for entry in entries:
                with block(f"attention {entry['severity']}"):
                    block("dot").props(f'role="img" aria-label="{shown.words(entry["severity"])}"')
                    with block("say"):
                        link = subject_link(self._page, entry["kind"], entry["name"])
                        subject = f"{entry['kind']} {shown.text(entry['name'], 80)}"
                        if link:
                            ui.link(subject, link)
                        else:
                            say(subject)
                        say(f": {shown.text(entry['text'], 400)}")
                        if (since := entry.get("since_seconds")) is not None:
                            say(f" for {shown.span(since)}", classes="mute small")
                    say(shown.text(entry["advice"], 400), "div", "do")
            if left_out:
                say(f"and {shown.number(left_out)} more", classes="mute small")


def _use_tone(use: dict[str, Any]) -> Tone:
    return "bad" if use["limit"] and use["used"] >= NEAR * use["limit"] else ""


def _overview_facts(now: dict[str, Any]) -> dict[str, tuple[str, Tone] | str]:
    running: Tone = "good" if now["state"] == "running" else "bad"
    free = [shown.size(disk["free"]) for disk in now["disks"]]
    return {
        "State": (now["state"], running),
        "Version": now["version"],
        "Up for": shown.span(now["uptime_seconds"]),
        "In flight": shown.number(now["in_flight"]),
        "Consumers": shown.number(now["consumers"]),
        **{label: shown.number(now["counts"][name]) for name, label in COUNTS.items()},
        "Spool": f"{shown.size(now['spool']['used'])} of {shown.size(now['spool']['limit'])}",
        "Disk free": ", ".join(free) or shown.UNKNOWN,
    }


TOPOLOGY_REFRESH = 5.0
LIMITS = [20, 40, 80, 200]


async def build_topology(page: Page) -> None:
    query: dict[str, object] = {"focus": page.query.get("focus") or None, "limit": _limit(page.query.get("limit"))}
    topology = await page.get("/topology", **query)
    with page.frame("Topology", "topology"):
        view = _Topology(page, query)
        view.show(topology)
    page.watch("/topology", TOPOLOGY_REFRESH, view.show, **query)


def _limit(text: str | None) -> int:
    return next((limit for limit in LIMITS if str(limit) == text), LIMITS[1])


class _Topology:
    def __init__(self, page: Page, query: dict[str, object]) -> None:
        self._page = page
        self._shown: dict[str, Any] | None = None
        self._nodes: list[Entry] = []
        self._names: dict[str, str] = {}
        with block("toolbar"):
            field = ui.input(placeholder="Around one destination: queue://orders", value=str(query["focus"] or ""))
            field.props('dense outlined clearable aria-label="Destination"').classes("quire-search")
            limit = ui.select({each: f"busiest {each}" for each in LIMITS}, value=query["limit"])
            limit.props('dense outlined options-dense aria-label="How many"')

            def look() -> None:
                page.go("/topology", focus=field.value, limit=limit.value)

            field.on("keydown.enter", look)
            field.on("clear", look)
            limit.on_value_change(look)
            self._left_out = say("", classes="mute small")
        with block("card"):
            with block("scroll"):
                self._chart = ui.echart({}, on_point_click=self._clicked, renderer="svg").classes("topology")
                self._chart.props('role="img" aria-label="The topology as a diagram; the table below has the same"')
            self._empty = say("Nothing has been sent or consumed yet.", classes="mute")
            with block("line legend small mute"):
                for kind, text in (
                    ("producer", "producers"),
                    ("queue", "queues"),
                    ("topic", "topics"),
                    ("stream", "streams"),
                    ("dead-letter", "dead letters"),
                    ("group", "groups, durables"),
                    ("consumer", "consumers"),
                    ("waits", "waits"),
                ):
                    block(f"swatch {kind}")
                    say(text)
        say("Edges", "h2", "bare")
        self._table = LocalTable(self._columns(), "None.", "from")

    def _columns(self) -> list[Column]:
        def name(key: str) -> Any:
            return lambda edge: self._names.get(edge[key], shown.text(edge[key], 60))

        def link(key: str) -> Any:
            return lambda edge: self._link(edge[key]) or ""

        return [
            Column("from", "From", name("from"), is_text=True, link=link("from")),
            Column("kind", "Does", lambda edge: shown.words(edge["kind"]), is_text=True),
            Column("to", "To", name("to"), is_text=True, link=link("to")),
            Column("rate", "Rate", lambda edge: shown.rate(edge["rate"])),
            Column("waits", "Waits", _wait, is_text=True, wraps=True, tone=lambda edge: "bad"),
        ]

    def show(self, topology: dict[str, Any]) -> None:
        if topology == self._shown:
            return
        self._shown = topology
        self._nodes = topology["nodes"]
        waits = {node["id"]: node["waits"] for node in self._nodes}
        edges = [edge | {"waits": edge["waits"] or waits.get(edge["to"])} for edge in topology["edges"]]
        self._names = {node["id"]: shown.text(node["name"], 60) for node in self._nodes}
        has_edges = bool(edges)
        self._chart.set_visibility(has_edges)
        self._empty.set_visibility(not has_edges)
        if has_edges:
            options, height = sankey(self._nodes, edges)
            self._chart.options.clear()
            self._chart.options.update(options)
            self._chart.style(f"height: {height}px")
            self._chart.update()
        self._table.show(edges)
        left_out = topology["left_out"]
        self._left_out.text = f"{shown.number(left_out)} more are summed as others" if left_out else ""

    def _link(self, identity: str) -> str | None:
        node = next((node for node in self._nodes if node["id"] == identity), None)
        return None if node is None else node_link(self._page, node)

    def _clicked(self, event: EChartPointClickEventArguments) -> None:
        if event.data_type == "node" and 0 <= event.data_index < len(self._nodes):
            link = node_link(self._page, self._nodes[event.data_index])
            if link:
                ui.navigate.to(link)


def node_link(page: Page, node: Entry) -> str | None:
    kind, name = node["kind"], node["name"]
    if kind in ("producer", "consumer") and name:
        return page.link("/connections", search=name)
    return subject_link(page, kind, name) or destination_link(page, str(name))


def _wait(edge: Entry) -> str:
    waits = edge["waits"]
    if not waits:
        return ""
    count = waits.get("messages")
    return shown.text(waits["text"]) + (f" ({shown.number(count)} messages)" if count else "")


STORE_REFRESH = 5.0


async def build_store(page: Page) -> None:
    store, operations = await page.get("/store"), await page.get("/operations")
    with page.frame("Store", "store") as head:
        view = _Store(page)
        if page.may("operate"):
            with head:
                button("Verify", "fact_check", view.verify)
        view.show(store)
        view.show_operations(operations)
    page.watch("/store", STORE_REFRESH, view.show)
    page.watch("/operations", STORE_REFRESH, view.show_operations)


class _Store:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._failure = notice("", tone="bad")
        self._tiles = Tiles(["Messages", "File", "Spool", "Disk free"])
        with block("card"):
            self._facts = Facts()
        say("Running and recent operations", "h2", "bare")
        self._operations = LocalTable(_operation_columns(), "None.", "id")
        if page.may("operate"):
            self._operations.row_actions(
                lambda one: {"Cancel": partial(_cancel_operation, page)} if one["state"] == "running" else {}
            )

    def show(self, store: dict[str, Any]) -> None:
        self._failure.set_visibility(bool(store["error"]))
        if store["error"]:
            self._failure.clear()
            with self._failure:
                say(shown.text(store["error"], 500))
        messages, file = store["messages"], store["file_bytes"]
        near: Tone = "bad" if messages["used"] > NEAR * messages["limit"] else ""
        self._tiles.show("Messages", shown.size(messages["used"]), f"of {shown.size(messages['limit'])}", near)
        self._tiles.show("File", shown.size(file), f"{shown.size(store['free_bytes'])} of it free" if file else "")
        self._tiles.show("Spool", shown.size(store["spool"]["used"]), f"of {shown.size(store['spool']['limit'])}")
        disk = store["disks"][0] if store["disks"] else None
        limit = f"at least {shown.size(disk['limit'])}" if disk else ""
        self._tiles.show("Disk free", shown.size(disk["free"]) if disk else shown.UNKNOWN, limit)
        failures = store["failures"]
        self._facts.show({
            "URL": shown.text(store["url"]), "Format": str(store["format"]), "Synced": shown.text(store["sync"]),
            "Accepts writes": ("yes", "good") if store["writable"] else ("no", "bad"),
            "Commits": shown.number(store["commits"]),
            "Failed commits": (shown.number(failures), "bad" if failures else ""),
            "Lanes": shown.number(store["lanes"]),
            "Destinations": f"{shown.number(store['destinations'])} of {shown.number(store['destinations_limit'])}",
            "Durable subscriptions, groups":
                f"{shown.number(store['subscriptions'])} of {shown.number(store['subscriptions_limit'])}",
            "Last verified, UTC": _verified(store["last_verify"]),
        })  # fmt: skip

    def show_operations(self, answer: dict[str, Any]) -> None:
        self._operations.show(answer["operations"])

    async def verify(self) -> None:
        if await self._page.attempt(self._page.caller.call("POST", "/store/verify")) is not None:
            ui.notify("The verification runs", type="positive")
            answer = await self._page.attempt(self._page.get("/operations"))
            if answer is not None:
                self.show_operations(answer)


def _verified(verified: dict[str, Any] | None) -> tuple[str, Tone] | str:
    if verified is None:
        return "not since the start"
    findings = verified["findings"]
    told = f"{shown.number(findings)} findings" if findings else "no finding"
    return f"{shown.time(verified['at'])}, {told}", "bad" if findings else "good"


def _operation_columns() -> list[Column]:
    tones: dict[str, Tone] = {"running": "", "done": "good", "failed": "bad", "cancelled": "warn"}
    state = Column(
        "state", "State", lambda one: one["state"], is_text=True, tone=lambda one: tones.get(one["state"], "")
    )
    return columns_of(OperationStatus, own={"state": state})


async def _cancel_operation(page: Page, entry: Entry) -> None:
    if await page.attempt(page.caller.call("DELETE", path_of("operations", entry["id"]))) is not None:
        ui.notify("The operation stops at its next step", type="positive")


LOG_REFRESH = 2.0
LIMIT = 1000
LEVELS = ["debug", "info", "warning", "error"]
_TONES: dict[str, Tone] = {"warning": "warn", "error": "bad"}


async def build_log(page: Page) -> None:
    log = await page.get("/log", limit=LIMIT)
    with page.frame("Log", "log"):
        view = _Log(page)
        view.show(log)
    page.watch("/log", LOG_REFRESH, view.show, limit=LIMIT)


class _Log:
    MOST = 300  # how many events are shown

    def __init__(self, page: Page) -> None:
        self._page = page
        self._events: list[Entry] = []
        self._level, self._search = page.query.get("level", "debug"), page.query.get("search", "")
        with block("toolbar"):
            field = ui.input(placeholder="Search events", value=self._search, on_change=self._searched)
            field.props('dense outlined clearable debounce=300 aria-label="Search events"').classes("quire-search")
            level = self._level if self._level in LEVELS else "debug"
            select = ui.select({name: f"{name} and above" for name in LEVELS}, value=level, on_change=self._chosen)
            select.props('dense outlined options-dense aria-label="Level"')
            self._count = say("", classes="mute small")
        columns = [
            value_column("at", "Time, UTC", "time"),
            Column("level", "Level", lambda event: event["level"], is_text=True,
                   tone=lambda event: _TONES.get(event["level"], "")),
            value_column("event", "Event"),
            Column("text", "Text", lambda event: shown.body(event["text"][:1000]), is_text=True, wraps=True),
        ]  # fmt: skip
        self._table = LocalTable(columns, "No event.", "number")

    def show(self, log: dict[str, Any]) -> None:
        self._events = log["events"]
        self._filter()

    def _filter(self) -> None:
        least = LEVELS.index(self._level) if self._level in LEVELS else 0
        text = self._search.casefold()
        found = [
            event for event in reversed(self._events)
            if (event["level"] not in LEVELS or LEVELS.index(event["level"]) >= least)
            and text in f"{event['event']} {event['text']}".casefold()
        ]  # fmt: skip
        self._table.show(found[: self.MOST])
        self._count.text = f"{shown.number(len(found))} of the last {shown.number(len(self._events))}"

    def _searched(self, event: Any) -> None:
        self._search = event.value or ""
        self._page.remember(search=self._search)
        self._filter()

    def _chosen(self, event: Any) -> None:
        self._level = event.value
        self._page.remember(level=self._level)
        self._filter()


KINDS = ["queue", "topic", "stream"]
VALUES = [value_column("key", "Setting"), value_column("value", "Value"), value_column("origin", "From")]


async def build_policies(page: Page) -> None:
    kind, name = page.query.get("kind", "queue"), page.query.get("name", "")
    kind = kind if kind in KINDS else "queue"
    with page.frame("Policies", "policies"):
        with block("toolbar"):
            choice = ui.select(KINDS, value=kind).props('dense outlined options-dense aria-label="Kind"')
            field = ui.input(placeholder="Which policies apply to this name?", value=name)
            field.props('dense outlined clearable aria-label="Name"').classes("quire-search")

            def look() -> None:
                page.go("/policies", kind=choice.value, name=field.value)

            field.on("keydown.enter", look)
            button("Explain", "tune", look)
        if name:
            _show_one(await page.get(path_of("policies", kind, name)))
        else:
            _show_all(await page.get("/policies"))


def _show_one(answer: dict[str, Any]) -> None:
    say(f"What applies to {shown.text(answer['destination'], 100)}, the most specific first", "h2", "bare")
    entries = [
        value_column("destination", "Policy for"),
        value_column("origin", "From"),
        value_column("applies", "Decides", "other"),
        value_column("overridden", "Overridden by a more specific one", "other"),
    ]
    LocalTable(entries, "No policy names it: the defaults hold.", "destination").show(answer["entries"])
    say("The values", "h2", "bare")
    meaning = Column("text", "Meaning", lambda entry: shown.text(entry["text"]), is_text=True, wraps=True)
    LocalTable([*VALUES, meaning], "None.", "key").show(answer["values"])


def _show_all(answer: dict[str, Any]) -> None:
    say("Policies", "h2", "bare")
    entries = [
        value_column("destination", "Policy for"),
        value_column("origin", "From"),
        Column("values", "Sets", lambda entry: _settings(entry["values"]), is_text=True),
    ]
    LocalTable(entries, "No policy is set: the base holds for all destinations.", "destination").show(answer["entries"])
    say("The base, which holds where no policy says otherwise", "h2", "bare")
    LocalTable(VALUES, "None.", "key").show(answer["base"])


def _settings(values: Entry) -> str:
    return shown.text(", ".join([f"{key} = {value}" for key, value in values.items()]))


async def build_connections(page: Page) -> None:
    links = {"address": lambda one: page.link("/consumers", search=one["address"])}
    columns = columns_of(Connection, links, state=_connection_state)
    with page.frame("Connections", "connections") as head:
        with head:
            link_button(page, "Consumers", "hearing", "/consumers")
        table = ServerTable(
            page, "connections", columns, sort="address", empty="No connection.",
            filters={"held": "Held", "blocked": "Not reading", "consuming": "Consuming"},
            search="Search addresses and client ids",
        )  # fmt: skip
        await table.load()


async def build_consumers(page: Page) -> None:
    crumbs = [("Connections", page.link("/connections"))]
    links = {"destination": lambda one: destination_link(page, one["destination"]) or page.link("/consumers")}
    consumer = consumer_columns(page)
    columns = [consumer[0], *columns_of(ConnectedConsumer, links), *consumer[1:]]
    with page.frame("Consumers", "connections", crumbs=crumbs):
        table = ServerTable(
            page, "consumers", columns, sort="destination",
            filters={"slow": "Slow", "full": "No credit", "exclusive": "Exclusive"},
            search="Search destinations, connections", empty="No consumer.", entry=flat,
        )  # fmt: skip
        await table.load()


def flat(consumer: Entry) -> Entry:
    """A consumer with what is said of its connection."""
    return {**consumer, **consumer["consumer"]}


def _connection_state(connection: Entry) -> tuple[str, Tone]:
    if connection["held"]:
        return "held: a limit is reached", "bad"
    if not connection["writable"]:
        return "does not read", "warn"
    return "open", "good"


async def build_schedule(page: Page) -> None:
    links = {"destination": lambda one: destination_link(page, one["destination"])}
    own = {
        "left": Column("left", "Repeats left", lambda one: "no end" if one["left"] < 0 else shown.number(one["left"])),
        "period": Column("period", "Every", lambda one: shown.span(one["period"] / 1000 if one["period"] else None)),
    }
    columns = columns_of(Scheduled, links, own)
    cancel_all = Action("Cancel", "all scheduled messages", "DELETE", "/schedule",
                        "scheduled messages are never sent")  # fmt: skip
    with page.frame("Schedule", "schedule") as head:
        table = CursorTable(page, columns, "/schedule", "messages", "Nothing is scheduled.")
        if page.may("operate"):
            with head:
                action_menu(page, [(cancel_all, table.reload)])
            table.row_actions(lambda entry: {"Cancel": partial(_cancel_scheduled, page, table)})
        await table.load()


async def _cancel_scheduled(page: Page, table: CursorTable, entry: Entry) -> None:
    text = f"It is not sent to {shown.text(entry['destination'], 80)}, nor are its repeats."
    if not await confirm(f"Cancel scheduled message {shown.text(entry['id'], 80)}", text, "Cancel it"):
        return
    if await page.attempt(page.caller.call("DELETE", path_of("schedule", entry["id"]))) is not None:
        ui.notify("The scheduled message was cancelled", type="positive")
        await table.reload()


async def build_transactions(page: Page) -> None:
    with page.frame("Prepared transactions", "transactions"):
        table = ServerTable(
            page, "transactions", columns_of(Prepared), path="/xa", sort="-age", search="Search transactions",
            filters={"undecided": "Undecided"}, empty="No transaction waits for its outcome.", identity="xid",
        )  # fmt: skip
        if page.may("operate"):
            table.row_actions(partial(_outcome_verbs, page, table))
        await table.load()


def _outcome_verbs(page: Page, table: ServerTable, entry: Entry) -> dict[str, Verb]:
    """An outcome that was decided can be forgotten, and nothing else."""
    verbs = {"Forget": "forget"} if entry["outcome"] else {"Commit": "commit", "Roll back": "rollback"}
    return {verb: partial(_decide, page, table, outcome) for verb, outcome in verbs.items()}


async def _decide(page: Page, table: ServerTable, outcome: str, entry: Entry) -> None:
    path = path_of("xa", entry["xid"])
    texts = {
        "commit": ("Commit", "Its messages are sent and its acknowledgements take effect, whatever its transaction "
                             "manager decides later."),
        "rollback": ("Roll back", "Its work is undone, whatever its transaction manager decides later."),
        "forget": ("Forget", "The broker forgets the decision: its transaction manager gets no answer about it."),
    }  # fmt: skip
    verb, text = texts[outcome]
    if await confirm(f"{verb} transaction {shown.text(entry['xid'], 80)}", text, verb):
        call = ("DELETE", path) if outcome == "forget" else ("POST", f"{path}/{outcome}")
        if await page.attempt(page.caller.call(*call)) is not None:
            ui.notify(f"{verb}: done", type="positive")
            await table.reload()
