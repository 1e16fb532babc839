"""The picture of who sends where, and who consumes: the busiest destinations, their producers and consumers."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from quire.broker.dead_letter import dead_letter_destination
from quire.broker.queues.queue import LaneDispatch
from quire.broker.routing.addresses import Scope, read_destination
from quire.destination import Destination, DestinationKind, split_prefix
from quire.errors import InvalidDestination, UnknownDestination
from quire.management.blocked import Waits, cause_text
from quire.management.overview import name_of
from quire.resources import Status, doc

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.core.subscription import Subscription
    from quire.management.overview import Sampler


class Client(NamedTuple):
    address: str
    client_id: str | None
    sends_to: Iterable[str]  # destinations as headers have them


def label_of(client_id: str | None, address: str) -> str:
    return client_id or address.rpartition(":")[0] or address


def destinations_of(texts: Iterable[str]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for text in texts:
        try:
            addresses, _ = read_destination(text)
        except InvalidDestination:
            continue
        found.update([(str(each.kind), each.name) for each in addresses if each.scope is Scope.COMMON])
    return found


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
        return Topology(list(self.nodes.values()), list(self.edges.values()), left_out)


STEP = 500  # how many destinations one step looks at
CLIENTS = 50  # how many connections one step looks at
MOST_CONSUMERS = 1000  # how many consumers of one destination are looked at

Place = tuple[str, str]  # a destination: kind and name


class TopologyReader:
    """Draws one picture: around a focus, or of the busiest destinations. Iterate over it: each step is bounded."""

    result: Topology  # the picture, when it is done

    def __init__(self, broker: "Broker", sampler: "Sampler", clients: Sequence[Client], focus: str, limit: int) -> None:
        self._broker = broker
        self._sampler = sampler
        self._clients = clients
        self._focus = focus
        self._limit = limit
        self._graph = Graph()
        self._shown: dict[Place, Any] = {}
        self._labels = {client.address: label_of(client.client_id, client.address) for client in clients}
        self._connections = Counter(self._labels.values())

    def __iter__(self) -> Iterator[None]:
        if self._focus:
            self._choose_focus()
        else:
            yield from self._choose_busiest()
        for place in self._shown:
            self._draw(place)
            yield
        self._draw_forwards()
        yield from self._draw_producers()
        yield from self._draw_others()

    # Which destinations.

    def _all(self) -> list[tuple[Place, Any]]:
        found = self._broker.destinations
        kinds = (("queue", found.queues), ("topic", found.topics), ("stream", found.streams))
        return [((kind, name), source) for kind, known in kinds for name, source in known.items()]

    def _choose_busiest(self) -> Iterator[None]:
        """The destinations with the highest rates, then those with most messages."""
        best: list[tuple[float, int, Place, Any]] = []
        known = self._all()
        for start in range(0, len(known), STEP):
            chunk = [(*self._rank(source), place, source) for place, source in known[start : start + STEP]]
            best = heapq.nlargest(self._limit, best + chunk, key=lambda ranked: ranked[:2])
            yield
        self._shown = {place: source for rate, weight, place, source in best if rate or weight}
        for composite in islice(self._broker.core.settings.composites, self._limit):
            self._show(composite.destination)
        for kind, name in list(self._shown):
            if kind == "queue":
                for topic in self._topics_of(Destination(DestinationKind.QUEUE, name)):
                    self._show(Destination(DestinationKind.TOPIC, topic))

    def _rank(self, source: Any) -> tuple[float, int]:
        depth = source.count if source.destination.kind is DestinationKind.STREAM else source.depth
        return sum(self._sampler.rates(source)), depth * 2 + bool(getattr(source, "subscriptions", ()))

    def _choose_focus(self) -> None:
        """One destination, what it forwards to or is forwarded from, and its dead letters."""
        kind, name = split_prefix(self._focus)
        kinds = list(DestinationKind) if kind is None else [kind]
        places = [Destination(each, name) for each in kinds if self._source(Destination(each, name)) is not None]
        if not places:
            raise UnknownDestination(f"there is no destination {self._focus[:100]!r}", name=self._focus[:100])
        for place in places:
            self._show(place)
            for source, target in self._forwards(place):
                self._show(source)
                self._show(target)
            if place.kind is not DestinationKind.STREAM:
                self._show(dead_letter_destination(place, self._broker.core.settings.policies.of(place)))

    def _show(self, destination: Destination) -> None:
        source = self._source(destination)
        if source is not None and len(self._shown) < 2 * self._limit:
            self._shown.setdefault((str(destination.kind), destination.name), source)

    def _source(self, destination: Destination) -> Any:
        found = self._broker.destinations
        kinds: dict[DestinationKind, dict[str, Any]] = {
            DestinationKind.QUEUE: found.queues, DestinationKind.TOPIC: found.topics,
            DestinationKind.STREAM: found.streams,
        }  # fmt: skip
        return kinds[destination.kind].get(destination.name)

    # Destinations, and who consumes them.

    def _draw(self, place: Place) -> None:
        kind, name = place
        source: Any = self._shown[place]
        in_rate, out_rate = self._sampler.rates(source)
        depth = source.count if kind == "stream" else source.depth
        node_kind: Any = kind
        waits = self._waiting(source, depth) if kind == "queue" else None
        self._graph.add(Node(_id(*place), node_kind, name, self._role(source), depth, in_rate, out_rate, 1, waits))
        if kind == "queue":
            self._draw_consumers(_id(*place), source, source.subscriptions, out_rate)
        elif kind == "topic":
            plain = [each.subscription for each in source.plain]
            self._draw_consumers(_id(*place), source, plain, None if source.durables else out_rate)
            for durable in islice(source.durables, self._limit):
                self._draw_part("durable", _id(*place), durable, durable.depth, durable.subscriptions)
        else:
            for group in islice(source.groups.values(), self._limit):
                members = [s for m in group.members.values() for s in m.children.values()]
                self._draw_part("group", _id(*place), group, group.lag, members)

    def _role(self, source: Any) -> str | None:
        destination = source.destination
        if destination.kind is DestinationKind.TOPIC and self._broker.routing.virtual_topics.is_virtual(
            destination.name
        ):
            return "virtual-topic"
        if any([composite.destination == destination for composite in self._broker.core.settings.composites]):
            return "composite"
        is_dead = destination.kind is not DestinationKind.STREAM and source.is_dead_letter_queue
        return "dead-letter" if is_dead else None

    def _waiting(self, source: Any, depth: int) -> Waiting | None:
        if not depth:
            return None
        if not source.subscriptions:
            return Waiting("no-consumer", "there is no consumer", depth)
        known = self._sampler.of(source)
        text = cause_text(self._broker, source)
        if known is not None and known.concern and text:
            return Waiting(known.concern, text, depth)
        return None

    def _draw_part(
        self, kind: NodeKind, above: str, source: Any, depth: int, subscriptions: "Sequence[Subscription]"
    ) -> None:
        name = name_of(kind, source)
        in_rate, out_rate = self._sampler.rates(source)
        waits = Waiting("no-consumer", "no client is connected", depth) if depth and not subscriptions else None
        node = self._graph.add(Node(_id(kind, name), kind, name, None, depth, in_rate, out_rate, 1, waits))
        self._graph.join(Edge(above, node, "subscribe", in_rate))
        self._draw_consumers(node, source, subscriptions, out_rate)

    def _draw_consumers(
        self, above: str, source: Any, subscriptions: "Sequence[Subscription]", rate: float | None
    ) -> None:
        """The consumers of one source, by client id or host; each has an equal share of the rate."""
        some = list(islice(subscriptions, MOST_CONSUMERS))
        by_label: dict[str, list[Subscription]] = defaultdict(list)
        for subscription in some:
            by_label[self._labels.get(subscription.session.name, subscription.session.name)].append(subscription)
        waits = Waits(self._broker, source) if isinstance(source, LaneDispatch) else None
        for label, own in by_label.items():
            share = None if rate is None else round(rate * len(own) / len(some), 3)
            node = self._client("consumer", label)
            wait = None if waits is None or source.depth <= source.in_flight else waits.of(own[0])
            waiting = None if wait is None else Waiting(wait.cause, wait.text, source.depth - source.in_flight)
            self._graph.join(Edge(above, node, "deliver", share, len(by_label) > 1, waiting))

    def _client(self, side: NodeKind, label: str) -> str:
        """The node of a client; beyond the limit one node stands for all others."""
        node = _id(side, label)
        if node in self._graph.nodes:
            return node
        if sum([each.kind == side for each in self._graph.nodes.values()]) >= self._limit:
            node, label = _id("others", side), f"other {side}s"
        if node not in self._graph.nodes:
            self._graph.add(Node(node, side, label, count=self._connections[label] or 1))
        return node

    # What forwards, and who sends.

    def _forwards(self, of: Destination | None = None) -> Iterator[tuple[Destination, Destination]]:
        """From which destination messages are forwarded to which: composites, virtual topics."""
        for composite in self._broker.core.settings.composites:
            for forward in composite.forward_to:
                kind, name = split_prefix(forward.destination)
                yield from _of(of, composite.destination, Destination(kind or DestinationKind.QUEUE, name))
        topics = [name for kind, name in self._shown if kind == "topic"]
        if of is not None:
            topics = [of.name] if of.kind is DestinationKind.TOPIC else self._topics_of(of)
        for topic in topics:
            for queue in islice(self._broker.routing.virtual_topics.queues(topic), self._limit):
                yield from _of(of, Destination(DestinationKind.TOPIC, topic), queue)

    def _topics_of(self, queue: Destination) -> list[str]:
        """The virtual topics that feed a queue."""
        virtual = self._broker.routing.virtual_topics
        parts = queue.name.split(".")
        names = [".".join(parts[start:]) for start in range(1, len(parts))]
        return [name for name in names if virtual.is_virtual(name) and queue in virtual.queues(name)]

    def _draw_forwards(self) -> None:
        for source, target in self._forwards():
            from_id, to_id = _id(str(source.kind), source.name), _id(str(target.kind), target.name)
            if to_id in self._graph.nodes:
                if from_id not in self._graph.nodes:
                    node_kind: Any = str(source.kind)
                    self._graph.add(Node(from_id, node_kind, source.name, "composite"))
                rate = self._sampler.rates(self._shown[str(target.kind), target.name])[0]
                self._graph.join(Edge(from_id, to_id, "forward", rate, True))
        for (kind, name), source in self._shown.items():
            if kind != "stream" and (source.dead_lettered or source.suppressed) and not source.is_dead_letter_queue:
                letter = dead_letter_destination(source.destination, source.policy)
                if _id(str(letter.kind), letter.name) in self._graph.nodes:
                    self._graph.join(Edge(_id(kind, name), _id(str(letter.kind), letter.name), "dead-letter"))

    def _draw_producers(self) -> Iterator[None]:
        """Who sends to what is shown: each client has an equal share of the rate."""
        senders: dict[str, dict[str, Waiting | None]] = defaultdict(dict)
        holds = {hold.session.name: hold for hold in self._broker.core.flow.holds.values()}
        for number, client in enumerate(self._clients, 1):
            hold = holds.get(client.address)
            wait = None if hold is None else Waiting(str(hold.cause), f"the producer is held: {hold.cause}", 0)
            for place in destinations_of(client.sends_to):
                if _id(*place) in self._graph.nodes:
                    known = senders[_id(*place)]
                    label = self._labels[client.address]
                    known[label] = known.get(label) or wait
            if number % CLIENTS == 0:
                yield
        for node, labels in senders.items():
            rate = self._graph.nodes[node].in_rate
            for label, wait in labels.items():
                share = None if rate is None else round(rate / len(labels), 3)
                self._graph.join(Edge(self._client("producer", label), node, "send", share, len(labels) > 1, wait))
            yield

    def _draw_others(self) -> Iterator[None]:
        """All destinations that are not shown, as one node."""
        left_out = depth = 0
        rates = [0.0, 0.0]
        known = self._all() if not self._focus else []
        for number, (place, source) in enumerate(known, 1):
            if place not in self._shown:
                came, went = self._sampler.rates(source)
                rates = [rates[0] + came, rates[1] + went]
                depth += source.count if place[0] == "stream" else source.depth
                left_out += 1
            if number % STEP == 0:
                yield
        if left_out:
            name = f"{left_out:,} other destinations"
            came, went = round(rates[0], 3), round(rates[1], 3)
            self._graph.add(Node("others", "others", name, None, depth, came, went, left_out))
        self.result = self._graph.topology(left_out)


def _of(
    wanted: Destination | None, source: Destination, target: Destination
) -> Iterator[tuple[Destination, Destination]]:
    if wanted is None or wanted in (source, target):
        yield source, target


def _id(kind: str, name: str) -> str:
    return f"{kind}:{name}"
