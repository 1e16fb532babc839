"""Where something is done, somebody was asked: every write, creation, removal and settlement of every operation.

Every request of the API and every action of clients is taken by an administrator, who may do everything. Meanwhile it
is noted what the core does, and which rights the operation has asked for: nothing may be done that was not asked for.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quire.broker.destinations import Destinations
from quire.broker.queues.queue import LaneDispatch, Queue
from quire.broker.routing.addresses import read_destination
from quire.broker.routing.temporary import TemporaryQueue, TemporaryTopic
from quire.broker.schedule import Schedule
from quire.broker.streams.partition import Partition
from quire.broker.topics.topic import Topic
from quire.destination import ADVISORIES, Destination, DestinationKind
from quire.http.app import ENDPOINTS
from quire.http.endpoint import Endpoint
from quire.management.messages import Draft
from quire.management.queues import Management, delete_queue
from quire.message import Message
from quire.protocols.openwire.commands import TransactionInfo
from quire.security import Access, Action
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import letter, settings
from tests.unit.http.conftest import Api
from tests.unit.http.sample_requests import Running, fill, sample_request
from tests.unit.http.test_access import secured
from tests.unit.server import test_rights_over_stomp as stomp
from tests.unit.server.openwire import test_rights as openwire

WRITE, CREATE, READ, MANAGE = Action.WRITE, Action.CREATE, Action.READ, Action.MANAGE

ASKED_BEFORE = {
    "POST /xa/{xid}/commit": "the user of the branch, when it sent; the request asks for the permission to operate",
    "POST /write/commit": "the writer, when it staged its rows",
}
"""The operations that do what was asked for earlier."""


class Record:
    """What the core does, and what it was asked before. It listens while it is a context."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: set[tuple[Action, DestinationKind, str]] = set()
        self.done: list[tuple[str, Destination]] = []
        self._is_seeing = False
        self._patch = patch

    def listen(self) -> None:
        """From now on."""
        for name in ("allows", "check"):
            self._wrap(Access, name, self._ask)
        self._wrap_sees()
        for kind in (Queue, Topic, Partition):
            self._wrap(kind, "send", lambda target, *_, **__: self._note("write", _destination(target)))
        self._wrap(Schedule, "send_later", lambda _, content, *__, **___: self._note("write", _scheduled(content)))
        for name, made in (("queue", Destinations.create_queue), ("topic", Destinations.create_topic)):
            self._wrap(Destinations, made.__name__, self._creates(DestinationKind(name)))
        self._wrap(Destinations, "create_stream", self._creates(DestinationKind.STREAM))
        for name in ("delete_queue", "delete_topic", "delete_stream"):
            self._wrap(Destinations, name, lambda _, gone: self._note("delete", gone.destination))
        for name in ("acknowledge", "dead_letter", "redeliver", "_settle"):
            self._wrap(LaneDispatch, name, lambda source, *_, **__: self._note("settle", _destination(source)))

    def unasked(self, stepped: SteppedBroker) -> Iterator[str]:
        """What was done although nobody was asked."""
        written = [Destination(kind, name) for action, kind, name in self.asked if action in (WRITE, MANAGE)]
        passed_on = stepped.broker.routing.reached(written)
        for what, destination in self.done:
            wanted = {
                "write": (WRITE, MANAGE), "create": (CREATE, MANAGE), "delete": (MANAGE,), "settle": (READ, MANAGE),
            }[what]  # fmt: skip
            is_asked = any([(action, destination.kind, destination.name) in self.asked for action in wanted])
            is_own = destination.name.startswith((ADVISORIES, "$quire."))
            if not (is_asked or is_own or (what in ("write", "create") and destination in passed_on)):
                yield f"{what} {destination}"

    def _wrap(self, owner: type, name: str, note: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def wrapped(this: Any, *arguments: Any, **named: Any) -> Any:
            note(this, *arguments, **named)
            return original(this, *arguments, **named)

        self._patch.setattr(owner, name, wrapped)

    def _wrap_sees(self) -> None:
        original = Access.sees

        def sees(access: Access, kind: DestinationKind, name: str) -> bool:
            self._is_seeing = True  # to know of a destination is no right to change it
            try:
                return original(access, kind, name)
            finally:
                self._is_seeing = False

        self._patch.setattr(Access, "sees", sees)

    def _ask(self, _access: Access, action: Action, kind: DestinationKind, name: str, *, exists: bool = True) -> None:
        if not self._is_seeing:
            self.asked |= {(action, kind, name)} | (set() if exists else {(CREATE, kind, name)})

    def _creates(self, kind: DestinationKind) -> Callable[..., None]:
        return lambda _, name, *__, **___: self._note("create", Destination(kind, name))

    def _note(self, what: str, destination: Destination | None) -> None:
        if destination is not None:
            self.done.append((what, destination))


def _destination(source: Any) -> Destination | None:
    """Of a queue, a topic, a partition, or a subscription; a temporary one is its connection's."""
    destination: Destination = source.destination
    return None if isinstance(source, TemporaryQueue | TemporaryTopic) else destination


def _scheduled(content: bytes) -> Destination:
    text = Message(0, content).headers()["quire-scheduled-destination"]
    (address,) = read_destination(text)[0]
    return Destination(address.kind, address.name)


# The API.

ROWS = [row for row in ENDPOINTS if row.method != "GET"]
CHANGED = {"name": "new", "stream": "new"}
LATER = {"AMQ_SCHEDULED_DELAY": "1000"}
ROOT: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/queues/new/messages", {"body": "b", "headers": LATER}),
    ("POST", "/queues/in/messages", {"body": "b"}), ("POST", "/topics/VirtualTopic.x/messages", {"body": "b"}),
    ("POST", "/queues/letters/redrive", {}), ("POST", "/queues/letters/redrive", {"to": "elsewhere"}),
    ("POST", "/queues/q/move", {"to": "topic://VirtualTopic.x"}), ("POST", "/queues/q/copy", {"to": "in"}),
    ("POST", "/queues/q/copy", {"to": "stream://new"}), ("PUT", "/durables/c/new", {"topic": "new"}),
    ("DELETE", "/queues/q", {}), ("DELETE", "/topics/q?force=true", {}), ("DELETE", "/streams/q?force=true", {}),
]  # fmt: skip
"""Requests beside the samples: what is passed on, what is made, what was somewhere else."""


class World:
    """A broker with users, one of everything, and the API."""

    def __init__(self) -> None:
        composites = [{"queue": "in", "forward_to": ["queue://between", "topic://VirtualTopic.x"]}]
        self.api = Api(SteppedBroker(settings(composites=composites)))
        fill(self.api)
        self.api.stepped.queue("Consumer.a.VirtualTopic.x")
        for origin in ("/queue/q", "/queue/gone", "/topic/VirtualTopic.x", "/queue/in,/queue/other", "/stream/q"):
            letter(self.api.stepped, origin, "letters")
        secrets = secured(self.api)
        self.api.application.services.bulk = Running("memory:", self.api.stepped.settings)
        self.header = {"authorization": f"Bearer {secrets['administrator']}"}

    def call(self, method: str, path: str, **sent: Any) -> int:
        status = self.api.call(method, path, headers=self.header, **sent).status_code
        self.api.stepped.run()
        return status


@pytest.mark.slow
@pytest.mark.parametrize("names", [{}, CHANGED], ids=["there", "new"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_a_request_does_nothing_that_was_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, row: Endpoint, names: dict[str, str]
) -> None:
    world = World()
    record = Record(monkeypatch)
    record.listen()
    path, sent = sample_request(row, names)
    assert world.call(row.method, path, **sent) < 500
    if f"{row.method} {row.path}" not in ASKED_BEFORE:
        assert list(record.unasked(world.api.stepped)) == []


@pytest.mark.parametrize(("method", "path", "body"), ROOT)
def test_nor_is_anything_passed_on(
    monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: dict[str, Any]
) -> None:
    world = World()
    record = Record(monkeypatch)
    record.listen()
    assert world.call(method, path, json=body) in (200, 201)
    assert record.done
    assert list(record.unasked(world.api.stepped)) == []


def test_a_message_of_the_schedule_is_asked_for_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.api.stepped.security.accounts.take(
        world.api.service.security.accounts.settings, world.api.service.security.accounts.state
    )
    world.call("POST", "/queues/new/messages", json={"body": "b", "headers": LATER})
    record = Record(monkeypatch)
    record.listen()
    world.api.stepped.advance(2)
    world.api.stepped.run()
    assert ("write", Destination(DestinationKind.QUEUE, "new")) in record.done
    assert list(record.unasked(world.api.stepped)) == []


# Clients.


@pytest.mark.parametrize(
    "row", [row for row in stomp.ROWS if row.command not in (b"ACK", b"NACK")],
    ids=lambda row: f"{row.command.decode()} {row.what}",
)  # fmt: skip
def test_a_stomp_client_does_nothing_that_was_not_asked_for(monkeypatch: pytest.MonkeyPatch, row: stomp.Row) -> None:
    world = stomp.World()
    if row.client_id:
        world.release()
    client = world.connect("administrator", {"client-id": "shared"} if row.client_id else None)
    record = Record(monkeypatch)
    record.listen()
    row.act(world, client)
    world.stepped.run()
    assert list(record.unasked(world.stepped)) == []


@pytest.mark.parametrize(
    "row", [row for row in openwire.ROWS if row.command is not TransactionInfo],
    ids=lambda row: f"{row.command.__name__} {row.what}",
)  # fmt: skip
def test_an_openwire_client_does_nothing_that_was_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, row: openwire.Row
) -> None:
    world = openwire.World()
    client = world.client("administrator", "ID:root")
    record = Record(monkeypatch)
    record.listen()
    command = row.make(world, client)
    if command is not None:
        client.tell(command)
        world.rig.run()
    assert list(record.unasked(world.rig)) == []


def test_the_record_notes_what_nobody_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedBroker()
    record = Record(monkeypatch)
    record.listen()
    list(Management(stepped.broker).send("q", Draft(b"m", {})))
    stepped.run()
    list(Management(stepped.broker).move("q", "r"))
    stepped.run()
    list(delete_queue(stepped.broker, "r"))
    assert [entry.partition(" ")[0] for entry in record.unasked(stepped)] == [
        "create", "write", "create", "settle", "write", "settle", "delete",
    ]  # fmt: skip
