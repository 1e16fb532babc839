"""The nodes and edges of the picture."""

from typing import Annotated, Literal

import msgspec

from quire.management.described import Status, doc

NodeKind = Literal["producer", "queue", "topic", "stream", "durable", "group", "consumer", "others"]
EdgeKind = Literal["send", "forward", "dead-letter", "subscribe", "deliver"]


class Waiting(Status, frozen=True):
    """Messages wait here."""

    cause: Annotated[str, doc("Why, in one word.")]
    text: Annotated[str, doc("Why, in words.")]
    messages: Annotated[int, doc("How many messages wait.")]


class Node(Status, frozen=True):
    """A destination, a durable subscription, a group; or producers or consumers with one client id or host."""

    id: Annotated[str, doc("What edges call it.")]
    kind: Annotated[NodeKind, doc("What it is; others stands for all destinations that are not shown.")]
    name: Annotated[str, doc("Its name.")]
    role: Annotated[str | None, doc("virtual-topic, composite, dead-letter, or null.")] = None
    depth: Annotated[int | None, doc("Its messages; of a group its lag; null for clients.")] = None
    in_rate: Annotated[float | None, doc("Messages that come, per second; null for clients.")] = None
    out_rate: Annotated[float | None, doc("Messages that leave, per second; null for clients.")] = None
    count: Annotated[int, doc("How many connections or destinations it stands for.")] = 1
    waits: Annotated[Waiting | None, doc("Why messages wait here; null if nothing keeps them.")] = None


class Edge(Status, frozen=True):
    """Messages go from one node to another."""

    source: Annotated[str, doc("The id of the node that they come from.")] = msgspec.field(name="from")
    target: Annotated[str, doc("The id of the node that they go to.")] = msgspec.field(name="to")
    kind: Annotated[EdgeKind, doc("How.")]
    rate: Annotated[float | None, doc("Messages per second; null if unknown.")] = None
    estimated: Annotated[bool, doc("Whether the rate is an equal share: the broker counts for destinations.")] = False
    waits: Annotated[Waiting | None, doc("Why messages wait here; null if nothing keeps them.")] = None


class Topology(Status, frozen=True):
    """The picture: the busiest destinations, and all others as one node."""

    nodes: list[Node]
    edges: list[Edge]
    left_out: Annotated[int, doc("How many destinations are in the node others.")]


class Graph:
    """Gathers nodes and edges, each of them once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str, str], Edge] = {}

    def add(self, node: Node) -> str:
        """Add a node, or connections to one of clients; gives its id."""
        known = self.nodes.get(node.id)
        if known is not None:
            node = msgspec.structs.replace(known, count=known.count + node.count)
        self.nodes[node.id] = node
        return node.id

    def join(self, edge: Edge) -> None:
        """Add an edge; of two between the same nodes the rates add up."""
        key = (edge.source, edge.target, edge.kind)
        known = self.edges.get(key)
        if known is not None:
            rate = None if known.rate is None and edge.rate is None else (known.rate or 0.0) + (edge.rate or 0.0)
            edge = msgspec.structs.replace(
                known, rate=rate, estimated=known.estimated or edge.estimated, waits=known.waits or edge.waits
            )
        self.edges[key] = edge

    def topology(self, left_out: int) -> Topology:
        """The picture."""
        return Topology(list(self.nodes.values()), list(self.edges.values()), left_out)
