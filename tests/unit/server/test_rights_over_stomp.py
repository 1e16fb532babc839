"""What each user may do over STOMP, as a whole: each action for each of them."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from quire.protocols.stomp.frames import CLIENT_COMMANDS
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.server.rights import (
    ADMINISTRATOR,
    LOGIN,
    MANAGE,
    NAMES,
    NEW,
    NOBODY,
    READ,
    REFUSED,
    WRITE,
    deny_writes,
    end_proofs,
    secure,
)

Q = "/queue/q"


class World:
    """A broker in which another user has what one must not touch."""

    def __init__(self) -> None:
        self.stepped = SteppedBroker()
        self.secrets = secure(self.stepped)
        self.other = self.connect("other", headers={"client-id": "shared"})
        for destination in (Q, "/topic/q", "/stream/q", "/queue/open", "/queue/ActiveMQ.DLQ", "/queue/$quire.x"):
            sender = self.other if destination in (Q, "/topic/q", "/stream/q", "/queue/open") else self.root
            sender.frame("SEND", {"destination": destination}, b"there")
            self.stepped.run()
        self.other.frame("SUBSCRIBE", {"id": "t", "destination": "/temp-queue/own"})
        durable = {"id": "d", "destination": "/topic/q", "activemq.subscriptionName": "sub"}
        self.other.frame("SUBSCRIBE", durable)
        self.other.frame("UNSUBSCRIBE", {"id": "d"})
        self.stepped.run()
        self.other.frame("SUBSCRIBE", {"id": "held", "destination": "/queue/open", "ack": "client-individual"})
        self.stepped.run()
        (self.held,) = self.other.take("MESSAGE")
        (self.temporary,) = self.stepped.broker.routing.temporaries.queues
        self.stepped.run()
        assert self.other.errors() == []

    @property
    def root(self) -> SteppedClient:
        return self.connect("administrator")

    def connect(self, name: str, headers: dict[str, str] | None = None) -> SteppedClient:
        shown = {"login": name, "passcode": self.secrets[name]} if self.secrets[name] else {}
        client = self.stepped.connect("1.2", {**shown, **(headers or {})})
        self.stepped.run()
        return client

    def release(self) -> None:
        """The other user goes: its client id is free."""
        self.other.vanish()
        self.stepped.run()


Act = Callable[[World, SteppedClient], None]


class Row(NamedTuple):
    """An action and who may take it."""

    command: bytes
    what: str
    who: set[str]
    act: Act
    client_id: bool = False  # whether the client has the other one's client id


def frame(command: str, **headers: str) -> Act:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def act(world: World, client: SteppedClient) -> None:
        client.frame(command, named, b"new" if command == "SEND" else b"")

    return act


def to_temporary(command: str) -> Act:
    def act(world: World, client: SteppedClient) -> None:
        client.frame(command, {"id": "1", "destination": f"/remote-temp-queue/{world.temporary}"})

    return act


def settle(command: str) -> Act:
    def act(world: World, client: SteppedClient) -> None:
        client.frame(command, {"id": world.held.headers["ack"]})

    return act


def in_transaction(end: str) -> Act:
    def act(world: World, client: SteppedClient) -> None:
        client.frame("BEGIN", {"transaction": "x"})
        client.frame("SEND", {"destination": Q, "transaction": "x"})
        client.frame(end, {"transaction": "x"})

    return act


def many_sends(world: World, client: SteppedClient) -> None:
    """Heads that are alike but for their destination are not read in full: they are checked all the same."""
    for number in range(20):
        client.frame("SEND", {"destination": "/queue/mine", "correlation-id": f"{number}"})
    client.frame("SEND", {"destination": Q, "correlation-id": "last"})


DURABLE = {"destination": "/topic/q", "activemq.subscriptionName": "sub"}
ROWS = [
    Row(b"CONNECT", "connects", LOGIN, lambda world, client: None),
    Row(b"STOMP", "connects", LOGIN, lambda world, client: None),
    Row(b"SEND", "to a queue", WRITE, frame("SEND", destination=Q)),
    Row(b"SEND", "to a topic", WRITE, frame("SEND", destination="/topic/q")),
    Row(b"SEND", "to a stream", WRITE, frame("SEND", destination="/stream/q")),
    Row(b"SEND", "to a new queue", NEW, frame("SEND", destination="/queue/new")),
    Row(b"SEND", "to several", WRITE - {"write"}, frame("SEND", destination="/queue/open,/queue/q")),
    Row(b"SEND", "to a wildcard", NOBODY, frame("SEND", destination="/queue/>")),
    Row(b"SEND", "an answer to another client", LOGIN, to_temporary("SEND")),
    Row(b"SEND", "to dead letters", ADMINISTRATOR, frame("SEND", destination="/queue/ActiveMQ.DLQ")),
    Row(b"SEND", "to the broker's own", ADMINISTRATOR, frame("SEND", destination="/queue/$quire.x")),
    Row(b"SEND", "an advisory", ADMINISTRATOR, frame("SEND", destination="/topic/ActiveMQ.Advisory.Consumer.Queue.q")),
    Row(b"SEND", "later", WRITE, frame("SEND", destination=Q, AMQ_SCHEDULED_DELAY="1000")),
    Row(b"SEND", "to one of many with heads that are alike", {"administrator", "allowed"}, many_sends),
    Row(b"SUBSCRIBE", "to a queue", READ, frame("SUBSCRIBE", id="1", destination=Q)),
    Row(b"SUBSCRIBE", "to a topic", READ, frame("SUBSCRIBE", id="1", destination="/topic/q")),
    Row(b"SUBSCRIBE", "to a stream", READ, frame("SUBSCRIBE", id="1", destination="/stream/q", group="g")),
    Row(b"SUBSCRIBE", "to a new queue", NEW, frame("SUBSCRIBE", id="1", destination="/queue/new")),
    Row(b"SUBSCRIBE", "to several", READ - {"read"}, frame("SUBSCRIBE", id="1", destination="/queue/open,/queue/q")),
    Row(b"SUBSCRIBE", "a browser", READ, frame("SUBSCRIBE", id="1", destination=Q, browser="true")),
    Row(b"SUBSCRIBE", "to dead letters", ADMINISTRATOR, frame("SUBSCRIBE", id="1", destination="/queue/ActiveMQ.DLQ")),
    Row(b"SUBSCRIBE", "to the broker's own", ADMINISTRATOR, frame("SUBSCRIBE", id="1", destination="/queue/$quire.x")),
    Row(
        b"SUBSCRIBE", "to advisories of a queue", READ | MANAGE,
        frame("SUBSCRIBE", id="1", destination="/topic/ActiveMQ.Advisory.Consumer.Queue.q"),
    ),
    Row(b"SUBSCRIBE", "to another's temporary queue", NOBODY, to_temporary("SUBSCRIBE")),
    Row(b"SUBSCRIBE", "to its own temporary queue", LOGIN, frame("SUBSCRIBE", id="1", destination="/temp-queue/x")),
    Row(
        b"SUBSCRIBE", "a new durable subscription", READ,
        lambda world, client: client.frame("SUBSCRIBE", {"id": "1", **DURABLE, "activemq.subscriptionName": "new"}),
        client_id=True,
    ),
    Row(
        b"SUBSCRIBE", "another's durable subscription", READ & MANAGE,
        lambda world, client: client.frame("SUBSCRIBE", {"id": "1", **DURABLE}), client_id=True,
    ),
    Row(
        b"UNSUBSCRIBE", "another's durable subscription", MANAGE,
        lambda world, client: client.frame("UNSUBSCRIBE", {"id": "1", **DURABLE}), client_id=True,
    ),
    Row(b"ACK", "another's message", NOBODY, settle("ACK")),
    Row(b"NACK", "another's message", NOBODY, settle("NACK")),
    Row(b"BEGIN", "and sends", WRITE, in_transaction("COMMIT")),
    Row(b"COMMIT", "what it sent", WRITE, in_transaction("COMMIT")),
    Row(b"ABORT", "what it sent", WRITE, in_transaction("ABORT")),
    Row(b"DISCONNECT", "leaves", LOGIN, frame("DISCONNECT", receipt="r")),
]  # fmt: skip


def test_the_table_has_every_command() -> None:
    assert {row.command for row in ROWS} == CLIENT_COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.command.decode()} {row.what}")
def test_each_user_may_do_what_the_table_says(row: Row) -> None:
    world = World()
    if row.client_id:
        world.release()
    outcomes: dict[str, list[str]] = {}
    for name in ("anonymous", *NAMES[:-5], *NAMES[-4:]):
        world.stepped.advance(5)  # for the failed logins
        before = world.stepped.queue("open").depth
        if name in ("expired", "revoked"):
            end_proofs(world.stepped)
        elif row.client_id and name in row.who:  # the one before may have changed it
            world = World()
            world.release()
        client = world.connect(name, {"client-id": "shared"} if row.client_id else None)
        row.act(world, client)
        world.stepped.run()
        outcomes[name] = client.errors()
        if outcomes[name]:
            assert world.stepped.queue("open").depth == before, "a refused send is refused whole"
        client.vanish()
        world.stepped.run()
    assert {name for name, codes in outcomes.items() if codes == ["not-authenticated"]} == REFUSED
    assert {name for name, codes in outcomes.items() if not codes} == row.who
    codes = {code for name in LOGIN for code in outcomes[name]}
    allowed = {"access-refused", "invalid-destination", "unknown-message", "unknown-subscription"}
    assert codes <= (allowed if row.who in (NOBODY, MANAGE) or row.client_id else {"access-refused"})


@pytest.mark.parametrize("settled", [False, True])
def test_a_transaction_is_refused_whole_if_something_in_it_may_not_be_sent_any_more(*, settled: bool) -> None:
    world = World()
    client = world.connect("allowed")
    client.frame("BEGIN", {"transaction": "t"})
    for destination in ("/queue/new", Q):
        client.frame("SEND", {"destination": destination, "transaction": "t"}, b"x")
    before = world.stepped.queue("q").depth
    deny_writes(world.stepped)
    if settled:
        world.stepped.run()
    client.frame("COMMIT", {"transaction": "t", "receipt": "r"})
    world.stepped.run()
    (error,) = client.take("ERROR")
    assert (error.headers["code"], error.headers["receipt-id"]) == ("access-refused", "r")
    assert client.connection.closed
    assert [world.stepped.queue(name).depth for name in ("q", "new")] == [before, 0]
    assert world.stepped.broker.core.transaction_bytes == 0
