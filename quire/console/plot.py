"""Plots of the last minutes or hours, whose past comes once, then each new point by itself; the topology as flows.

In the diagram of flows edges are as thick as their rates, red where something waits.
"""

import json
from collections import Counter
from typing import Any, NamedTuple

from nicegui import ui

from quire.console import shown
from quire.console.elements import BAD, GROUND, LINES, block, say
from quire.console.page import Page
from quire.console.session import Watch

SPANS = {"5m": ("5 min", 5 * 60_000), "1h": ("1 h", 3600_000), "24h": ("24 h", 24 * 3600_000)}
"""How far back plots go: what the API calls it, what users read, milliseconds."""


class Line(NamedTuple):
    key: str  # where the API has its values
    label: str
    colour: str


class Plots:
    """The plots of one object, over a span that the user chooses; ``of`` is its kind in the API."""

    def __init__(self, page: Page, of: str, name: str | None, plots: list[tuple[str, list[Line]]]) -> None:
        self._page = page
        self._query: dict[str, object] = {"of": of, "name": name}
        self._span = "5m"
        self._last = 0
        self._watch: Watch | None = None
        with block("line"):
            say("Last", classes="mute small")
            choices = {span: text for span, (text, _) in SPANS.items()}
            toggle = ui.toggle(choices, value=self._span, on_change=self._chosen)
            toggle.props('dense no-caps unelevated toggle-color=primary aria-label="Time span"')
        with block("grid"):
            self._plots = [(_chart(title, lines), lines) for title, lines in plots]

    async def load(self) -> None:
        history = await self._page.get("/history", span=self._span, **self._query)
        for chart, lines in self._plots:
            for line, series in zip(lines, chart.options["series"], strict=True):
                series["data"] = [list(point) for point in zip(history["at"], history[line.key], strict=True)]
            chart.update()
        self._last = history["at"][-1] if history["at"] else 0
        if self._watch is not None:
            self._page.unwatch(self._watch)
        seconds = max(2.0, min(60.0, history.get("step_seconds") or 5.0))
        self._watch = self._page.watch("/history", seconds, self._push, span=self._span, **self._query)

    def _push(self, history: dict[str, Any]) -> None:
        keep = SPANS[self._span][1]
        points = [
            [chart.id, at, [history[line.key][place] for line in lines], keep]
            for place, at in enumerate(history["at"]) if at > self._last
            for chart, lines in self._plots
        ]  # fmt: skip
        if points:
            self._last = history["at"][-1]
            self._page.client.run_javascript(f"quirePush({json.dumps(points)})")

    async def _chosen(self, event: Any) -> None:
        self._span = event.value
        await self._page.attempt(self.load())


def _chart(title: str, lines: list[Line]) -> ui.echart:
    with block("card"):
        say(title, "h2")
        return ui.echart(_options(lines), renderer="svg").classes("plot").props(f'role="img" aria-label="{title}"')


def _options(lines: list[Line]) -> dict[str, Any]:
    label = {"color": GROUND, "fontSize": 11}
    return {
        "animation": False,
        "useUTC": True,
        "grid": {"left": 8, "right": 12, "top": 30 if len(lines) > 1 else 12, "bottom": 4, "containLabel": True},
        "legend": {
            "show": len(lines) > 1, "top": 0, "left": 0, "icon": "roundRect", "itemWidth": 10, "itemHeight": 3,
            "textStyle": {"color": GROUND, "fontSize": 12},
        },
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "xAxis": {
            "type": "time", "axisLine": {"lineStyle": {"color": LINES}}, "axisTick": {"show": False},
            "axisLabel": label | {"hideOverlap": True}, "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value", "min": 0, "splitNumber": 3, "minInterval": 0, "axisLabel": label,
            "splitLine": {"lineStyle": {"color": LINES}},
        },
        "series": [
            {
                "type": "line", "name": line.label, "data": [], "showSymbol": False, "color": line.colour,
                "lineStyle": {"width": 1.75}, "areaStyle": {"opacity": 0.08},
            }
            for line in lines
        ],
    }  # fmt: skip


KINDS = {
    "producer": "#7a8aa0", "queue": "#2a8fa3", "topic": "#5b7fd6", "stream": "#7a68c9", "group": "#b26bb0",
    "durable": "#b26bb0", "consumer": "#4a9d6e", "others": "#9aa4b1",
}  # fmt: skip
DEAD_LETTER = "#c58b2a"

ROW = 30  # how many pixels a node has in the column that has the most
LEAST = 0.04  # an edge without a rate is as thick as this part of the thickest
LABEL = 28  # how many characters of a name are beside a node


def sankey(nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    flows = _without_circles(edges)
    thickest = max([edge["rate"] or 0 for edge in flows], default=0) or 1.0
    series = {
        "type": "sankey", "left": 8, "right": 190, "top": 12, "bottom": 12, "nodeWidth": 12, "nodeGap": 14,
        "draggable": False, "emphasis": {"focus": "adjacency"}, "layoutIterations": 48, "nodeAlign": "left",
        "label": {"color": GROUND, "fontSize": 12},
        "data": [_node(node) for node in nodes],
        "links": [_link(edge, thickest) for edge in flows],
    }  # fmt: skip
    highest = max(Counter(_depths([node["id"] for node in nodes], flows).values()).values(), default=1)
    return {"animation": False, "tooltip": {"show": False}, "series": [series]}, max(280, ROW * highest + 60)


def _node(node: dict[str, Any]) -> dict[str, Any]:
    colour = DEAD_LETTER if node.get("role") == "dead-letter" else KINDS.get(node["kind"], GROUND)
    # In a label's text, braces are ECharts' own.
    label = shown.text(node["name"], 400).replace("{", "(").replace("}", ")")
    short = label if len(label) <= LABEL else label[: LABEL - 1] + "…"
    depth = node.get("depth")
    return {
        "name": node["id"],
        "itemStyle": {"color": colour, "borderColor": BAD, "borderWidth": 2 if node["waits"] else 0},
        "label": {"formatter": short + (f" · {shown.number(depth)}" if depth else "")},
    }


def _link(edge: dict[str, Any], thickest: float) -> dict[str, Any]:
    waits = bool(edge["waits"])
    return {
        "source": edge["from"],
        "target": edge["to"],
        "value": max(edge["rate"] or 0.0, thickest * LEAST),
        "lineStyle": {"color": BAD if waits else GROUND, "opacity": 0.55 if waits else 0.28},
    }


def _without_circles(edges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The edges in their order, without those that would close a circle: such a diagram has none."""
    targets: dict[str, set[str]] = {}
    kept = []
    for edge in edges:
        if edge["from"] != edge["to"] and not _reaches(targets, edge["to"], edge["from"]):
            targets.setdefault(edge["from"], set()).add(edge["to"])
            kept.append(edge)
    return kept


def _reaches(targets: dict[str, set[str]], start: str, end: str) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        for target in targets.get(waiting.pop(), ()):
            if target == end:
                return True
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return start == end


def _depths(nodes: list[str], edges: list[dict[str, Any]]) -> dict[str, int]:
    """In which column each node is."""
    depths = dict.fromkeys(nodes, 0)
    for _ in nodes:
        moved = False
        for edge in edges:
            if depths.get(edge["to"], 0) < depths.get(edge["from"], 0) + 1:
                depths[edge["to"]] = depths.get(edge["from"], 0) + 1
                moved = True
        if not moved:
            break
    return depths
