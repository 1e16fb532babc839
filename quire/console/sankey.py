"""The topology as a diagram of flows: edges as thick as their rates, red where something waits."""

from collections import Counter
from typing import Any

from quire.console import shown
from quire.console.theme import BAD, GROUND

KINDS = {
    "producer": "#7a8aa0", "queue": "#2a8fa3", "topic": "#5b7fd6", "stream": "#7a68c9", "group": "#b26bb0",
    "durable": "#b26bb0", "consumer": "#4a9d6e", "others": "#9aa4b1",
}  # fmt: skip
DEAD_LETTER = "#c58b2a"

ROW = 30
"""How many pixels a node has in the column that has the most."""

LEAST = 0.04
"""An edge without a rate is as thick as this part of the thickest."""

LABEL = 28
"""How many characters of a name are beside a node."""


def sankey(nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """The options of a chart, and its height in pixels."""
    flows = _without_circles(edges)
    thickest = max([edge["rate"] or 0 for edge in flows], default=0) or 1.0
    series = {
        "type": "sankey", "left": 8, "right": 190, "top": 12, "bottom": 12, "nodeWidth": 12, "nodeGap": 14,
        "draggable": False, "emphasis": {"focus": "adjacency"}, "layoutIterations": 48, "nodeAlign": "left",
        "label": {"color": GROUND, "fontSize": 12},
        "data": [_node(node) for node in nodes],
        "links": [_link(edge, thickest) for edge in flows],
    }  # fmt: skip
    tooltip = {"show": False}
    depths = _depths([node["id"] for node in nodes], flows)
    return {"animation": False, "tooltip": tooltip, "series": [series]}, max(
        280, ROW * max(Counter(depths.values()).values(), default=1) + 60
    )


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
