"""The topology: who sends to what, what goes on to where, who consumes it, and where something waits."""

from typing import Any

from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from quire.console import shown
from quire.console.elements import block, say
from quire.console.page import Page, destination_link, subject_link
from quire.console.plot import sankey
from quire.console.tables import Column, Entry, LocalTable

REFRESH = 5.0
LIMITS = [20, 40, 80, 200]


async def build(page: Page) -> None:
    query: dict[str, object] = {"focus": page.query.get("focus") or None, "limit": _limit(page.query.get("limit"))}
    topology = await page.get("/topology", **query)
    with page.frame("Topology", "topology"):
        view = _Topology(page, query)
        view.show(topology)
    page.watch("/topology", REFRESH, view.show, **query)


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
