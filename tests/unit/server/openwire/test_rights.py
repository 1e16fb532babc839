"""What each user may do over OpenWire, as a whole: each action for each of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTopic,
    ConnectionControl,
    ConnectionId,
    ConnectionInfo,
    ConsumerControl,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    ExceptionResponse,
    FlushCommand,
    KeepAliveInfo,
    Message,
    MessageAck,
    MessageDispatch,
    MessagePull,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionId,
    SessionInfo,
    ShutdownInfo,
    TransactionInfo,
    TransactionType,
    WireFormatInfo,
    XATransactionId,
)
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Q, Rig, thrown
from tests.unit.server.rights import (
    ADMINISTRATOR,
    LOGIN,
    MANAGE,
    NAMES,
    NEW,
    NOBODY,
    OPERATE,
    READ,
    REFUSED,
    WRITE,
    deny_writes,
    end_proofs,
    secure,
)

T = ActiveMQTopic("q")
STREAM = ActiveMQTopic("stream://q")
XID = XATransactionId(1, b"other", b"1")


class World:
    """A broker in which another user has what one must not touch."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.secrets = secure(self.rig)
        self.other = self.client("other", "ID:other")
        self.other.send("there", destination=Q)
        self.other.send("there", destination=T)
        self.other.send("there", destination=STREAM)
        self.other.send("there", destination=ActiveMQQueue("open"))
        self.temporary = self.other.temporary()
        consumer = self.other.consumer(T, subscription_name="sub")
        self.other.remove(consumer)
        self.other.done(self.other.step(TransactionType.BEGIN, XID))
        self.other.send("prepared", destination=ActiveMQQueue("open"), transaction_id=XID)
        self.other.done(self.other.step(TransactionType.END, XID))
        self.other.ask(self.other.step(TransactionType.PREPARE, XID))
        self.held = self.other.consumer(ActiveMQQueue("open"))
        self.rig.run()
        assert self.other.errors() == []

    def client(self, name: str, id: str) -> OpenWireClient:
        client = self.rig.negotiated(id.removeprefix("ID:"))
        shown = {"user_name": name, "password": self.secrets[name]} if self.secrets[name] else {}
        client.done(client.connection_info(**shown))
        client.tell(SessionInfo(session_id=client.session_id))
        self.rig.run()
        return client


Make = Callable[[World, OpenWireClient], Any]


class Row(NamedTuple):
    """A command and who may send it."""

    command: type
    what: str
    who: set[str]
    make: Make


def consumes(destination: ActiveMQDestination, **fields: Any) -> Make:
    return lambda world, client: client.consumer_info(destination, **fields)


def sends(destination: ActiveMQDestination) -> Make:
    return lambda world, client: client.message("new", destination)


def changes(name: str, operation: int) -> Make:
    return lambda world, client: DestinationInfo(destination=ActiveMQQueue(name), operation_type=operation)


def steps(type: TransactionType, id: Any = XID) -> Make:
    return lambda world, client: client.step(type, id)


def removes(id: Callable[[OpenWireClient], Any]) -> Make:
    return lambda world, client: RemoveInfo(object_id=id(client), last_delivered_sequence_id=-2)


def acknowledges(world: World, client: OpenWireClient) -> MessageAck:
    """Another connection's message, by the id of the other one's consumer."""
    (dispatch,) = world.other.take(MessageDispatch)
    return client.ack([dispatch], AckType.STANDARD)


def unsubscribes(name: str) -> Make:
    return lambda world, client: RemoveSubscriptionInfo(
        connection_id=ConnectionId(client.id), client_id="ID:other", subscription_name=name
    )


ADVISORIES = ActiveMQTopic("ActiveMQ.Advisory.TempQueue,topic://ActiveMQ.Advisory.TempTopic")
OF_QUEUE = ActiveMQTopic("ActiveMQ.Advisory.Consumer.Queue.q")
BROWSES = {"browser": True}
ROWS = [
    Row(ConnectionInfo, "connects", LOGIN, lambda world, client: None),
    Row(WireFormatInfo, "agrees", LOGIN, lambda world, client: None),
    Row(SessionInfo, "opens a session", LOGIN, lambda world, client: SessionInfo(session_id=SessionId(client.id, 7))),
    Row(KeepAliveInfo, "is alive", LOGIN, lambda world, client: KeepAliveInfo()),
    Row(ConnectionControl, "is fault tolerant", LOGIN, lambda world, client: ConnectionControl(fault_tolerant=True)),
    Row(FlushCommand, "flushes", LOGIN, lambda world, client: FlushCommand()),
    Row(ShutdownInfo, "leaves", LOGIN, lambda world, client: ShutdownInfo()),
    Row(
        ConsumerControl, "of another's consumer changes nothing", LOGIN,
        lambda world, client: ConsumerControl(consumer_id=world.held, prefetch=0),
    ),
    Row(
        MessagePull, "for another's consumer gets nothing", LOGIN,
        lambda world, client: MessagePull(consumer_id=world.held, destination=Q, timeout=-1),
    ),
    Row(
        ProducerInfo, "of a queue", WRITE,
        lambda world, client: ProducerInfo(producer_id=ProducerId(client.id, 1, 9), destination=Q),
    ),
    Row(
        ProducerInfo, "of a new queue", NEW,
        lambda world, client: ProducerInfo(producer_id=ProducerId(client.id, 1, 9), destination=ActiveMQQueue("new")),
    ),
    Row(Message, "to a queue", WRITE, sends(Q)),
    Row(Message, "to a topic", WRITE, sends(T)),
    Row(Message, "to a stream", WRITE, sends(STREAM)),
    Row(Message, "to a new queue", NEW, sends(ActiveMQQueue("new"))),
    Row(Message, "to several", WRITE - {"write"}, sends(ActiveMQQueue("open,q"))),
    Row(Message, "to a wildcard", NOBODY, sends(ActiveMQQueue(">"))),
    Row(Message, "an answer to another client", LOGIN, lambda world, client: client.message("x", world.temporary)),
    Row(Message, "to dead letters", ADMINISTRATOR, sends(ActiveMQQueue("ActiveMQ.DLQ"))),
    Row(Message, "an advisory", ADMINISTRATOR, sends(OF_QUEUE)),
    Row(ConsumerInfo, "of a queue", READ, consumes(Q)),
    Row(ConsumerInfo, "of a topic", READ, consumes(T)),
    Row(ConsumerInfo, "of a stream", READ, consumes(STREAM, subscription_name="g")),
    Row(ConsumerInfo, "of a stream, browsing", READ, consumes(STREAM, **BROWSES)),
    Row(ConsumerInfo, "of a queue, browsing", READ, consumes(Q, **BROWSES)),
    Row(ConsumerInfo, "of several", READ - {"read"}, consumes(ActiveMQQueue("open,q"))),
    Row(ConsumerInfo, "of a wildcard, which is filtered", LOGIN, consumes(ActiveMQQueue(">"))),
    Row(ConsumerInfo, "of dead letters", ADMINISTRATOR, consumes(ActiveMQQueue("ActiveMQ.DLQ"))),
    Row(ConsumerInfo, "of the broker's own", ADMINISTRATOR, consumes(ActiveMQQueue("$quire.x"))),
    Row(ConsumerInfo, "of advisories that all need", LOGIN, consumes(ADVISORIES)),
    Row(ConsumerInfo, "of advisories of a queue", READ | MANAGE, consumes(OF_QUEUE)),
    Row(
        ConsumerInfo, "of another's temporary queue", NOBODY,
        lambda world, client: client.consumer_info(world.temporary),
    ),
    Row(ConsumerInfo, "of a durable subscription", READ, consumes(T, subscription_name="own")),
    Row(MessageAck, "of another's message changes nothing", LOGIN, acknowledges),
    Row(DestinationInfo, "of a new queue", NEW, changes("new", 0)),
    Row(DestinationInfo, "of a queue that is there", READ | WRITE | MANAGE | {"monitor"}, changes("q", 0)),
    Row(DestinationInfo, "deletes a queue", MANAGE, changes("q", 1)),
    Row(
        DestinationInfo, "makes a temporary queue", LOGIN,
        lambda world, client: DestinationInfo(destination=ActiveMQTempQueue(f"{client.id}:1"), operation_type=0),
    ),
    Row(
        DestinationInfo, "deletes another's temporary queue", NOBODY,
        lambda world, client: DestinationInfo(destination=world.temporary, operation_type=1),
    ),
    Row(RemoveInfo, "of its session", LOGIN, removes(lambda client: client.session_id)),
    Row(RemoveInfo, "of another's consumer changes nothing", LOGIN, removes(lambda _: ConsumerId("ID:other", 1, 1))),
    Row(RemoveSubscriptionInfo, "another's", MANAGE, unsubscribes("sub")),
    Row(RemoveSubscriptionInfo, "a group of a stream", MANAGE, unsubscribes("stream://q?group=g")),
    Row(TransactionInfo, "recovers", LOGIN, steps(TransactionType.RECOVER, None)),
    Row(TransactionInfo, "works in another's branch", NOBODY, steps(TransactionType.BEGIN)),
    Row(TransactionInfo, "commits another's branch", OPERATE, steps(TransactionType.COMMIT_TWO_PHASE)),
    Row(TransactionInfo, "rolls another's branch back", OPERATE, steps(TransactionType.ROLLBACK)),
]  # fmt: skip


def test_the_table_has_every_command() -> None:
    session = Rig().negotiated().session
    assert {row.command for row in ROWS} == {*session._handlers, Message, MessageAck}


def outcome(world: World, name: str, row: Row) -> str:
    """The code of the error; empty if it was done."""
    client = world.rig.negotiated(f"client-of-{name}")
    shown = {"user_name": name, "password": world.secrets[name]} if world.secrets[name] else {}
    answer = client.ask(client.connection_info(**shown))
    if isinstance(answer, ExceptionResponse):
        return thrown(answer)[1]
    client.tell(SessionInfo(session_id=client.session_id))
    command = row.make(world, client)
    world.rig.run()
    client.received().clear()
    if command is None:
        return ""
    if not hasattr(command, "response_required") or isinstance(command, KeepAliveInfo | ShutdownInfo):
        client.tell(command)
        world.rig.run()
        return "".join(client.errors())
    answer = client.ask(command)
    code = thrown(answer)[1] if isinstance(answer, ExceptionResponse) else ""
    client.vanish()
    world.rig.run()
    return code


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.command.__name__} {row.what}")
def test_each_user_may_do_what_the_table_says(row: Row) -> None:
    outcomes = {}
    for name in ("anonymous", *[name for name in NAMES if name != "other"]):
        world = World()
        if row.what == "a group of a stream":
            world.other.consumer(STREAM, subscription_name="g")
            world.other.vanish()
            world.rig.run()
        if name in REFUSED:
            end_proofs(world.rig)
        before = world.rig.depth("open")
        outcomes[name] = outcome(world, name, row)
        if outcomes[name] or row.command is MessageAck:
            assert world.rig.depth("open") == before, "what is refused is refused whole"
    assert {name for name, code in outcomes.items() if code == "not-authenticated"} == REFUSED
    assert {name for name, code in outcomes.items() if not code} == row.who
    codes = {outcomes[name] for name in LOGIN - row.who}
    if row.command is TransactionInfo:
        assert codes <= {"unknown-xid", "wrong-transaction-state"}
    elif row.who is not NOBODY and row.command is not RemoveSubscriptionInfo:
        assert codes <= {"access-refused"}


def test_recovered_branches_are_the_users_own() -> None:
    world = World()
    lists = {}
    for name in ("allowed", "operator", "other"):
        client = world.client(name, f"ID:{name}-2")
        answer: Any = client.ask(client.step(TransactionType.RECOVER, None))
        lists[name] = answer.data
    assert lists == {"allowed": [], "operator": [XID], "other": [XID]}


def test_a_connection_of_the_same_id_is_another_users() -> None:
    world = World()
    thief = world.rig.negotiated("other")
    info = thief.connection_info("other-client", user_name="allowed", password=world.secrets["allowed"])
    assert thief.refused(info) == ("JMSSecurityException", "access-refused")
    assert world.other.is_open()


def test_an_id_that_begins_as_another_does_not_own_its_temporary_queue() -> None:
    world = World()
    thief = world.rig.negotiated("x")
    thief.id = "ID"
    thief.done(thief.connection_info("thief", user_name="allowed", password=world.secrets["allowed"]))
    thief.tell(SessionInfo(session_id=thief.session_id))
    _, code = thief.refused(thief.consumer_info(world.temporary))
    assert code == "invalid-destination"
    thief.ask(DestinationInfo(destination=world.temporary, operation_type=1))
    assert world.rig.broker.routing.temporaries.queues


def test_refused_logins_are_told_and_the_connection_ends() -> None:
    world = World()
    client = world.rig.negotiated("wrong")
    assert client.refused(client.connection_info(user_name="allowed", password="no")) == (
        "JMSSecurityException", "not-authenticated",
    )  # fmt: skip
    assert client.refused(client.message("x"))[1] == "protocol-violation"
    world.rig.advance(3)
    assert not client.is_open()


def test_a_client_that_introduces_itself_anew_logs_in_anew() -> None:
    world = World()
    client = world.client("administrator", "ID:again")
    client.send("1", destination=Q)
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    client.done(client.connection_info(user_name="read", password=world.secrets["read"]))
    assert client.refused(client.message("2", Q))[1] == "access-refused"
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    refused = client.refused(client.connection_info(user_name="administrator", password="no"))
    assert refused == ("JMSSecurityException", "not-authenticated")
    world.rig.advance(3)
    assert not client.is_open()


def test_a_transaction_is_rolled_back_whole_if_something_in_it_may_not_be_sent_any_more() -> None:
    world = World()
    client = world.client("allowed", "ID:sender")
    id = client.begin()
    for queue in (ActiveMQQueue("new"), Q):
        client.send("x", destination=queue, transaction_id=id)
    before = world.rig.depth()
    deny_writes(world.rig)
    refused = client.ask(client.step(TransactionType.COMMIT_ONE_PHASE, id))
    assert thrown(refused) == ("TransactionRolledBackException", "transaction-rolled-back")
    assert (world.rig.depth(), world.rig.depth("new")) == (before, 0)
    assert client.refused(client.step(TransactionType.COMMIT_ONE_PHASE, id))[1] == "unknown-transaction"
    assert world.rig.broker.core.transaction_bytes == 0


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("type", [TransactionType.PREPARE, TransactionType.COMMIT_ONE_PHASE])
def test_a_branch_is_rolled_back_unless_it_is_prepared(type: TransactionType, *, prepared: bool) -> None:
    world = World()
    client = world.client("allowed", "ID:sender")
    xid = XATransactionId(1, b"mine", b"1")
    client.done(client.step(TransactionType.BEGIN, xid))
    for queue in (ActiveMQQueue("new"), Q):
        client.send("x", destination=queue, transaction_id=xid)
    client.done(client.step(TransactionType.END, xid))
    before = world.rig.depth()
    if prepared:
        client.ask(client.step(TransactionType.PREPARE, xid))
    deny_writes(world.rig)
    if prepared:  # its commit stands
        client.done(client.step(TransactionType.COMMIT_TWO_PHASE, xid))
        assert (world.rig.depth(), world.rig.depth("new")) == (before + 1, 1)
        return
    assert client.refused(client.step(type, xid))[1] == "transaction-rolled-back"
    assert (world.rig.depth(), world.rig.depth("new")) == (before, 0)
    assert client.refused(client.step(type, xid))[1] == "unknown-xid"


def test_a_rule_that_goes_ends_the_consumer_and_not_the_connection() -> None:
    world = World()
    reader = world.client("read", "ID:reader")
    reader.consumer(Q)
    world.rig.run()
    assert reader.messages() == ["there"]
    accounts = world.rig.security.accounts
    accounts.take(replace(accounts.settings, rules=()), accounts.state)
    world.rig.run()
    assert reader.errors() == ["access-refused"]
    assert [control.close for control in reader.take(ConsumerControl)] == [True]
    assert reader.is_open()
    assert world.rig.queue("q").consumer_count == 0
    writer = world.client("administrator", "ID:writer")
    writer.send("more", destination=Q)
    assert reader.messages() == []


def test_proofs_that_end_close_their_connections() -> None:
    world = World()
    clients = [world.client(name, f"ID:{name}") for name in ("expired", "revoked", "allowed")]
    end_proofs(world.rig)
    assert [client.is_open() for client in clients] == [False, False, True]


def test_messages_have_their_user_if_that_is_asked_for() -> None:
    rig = Rig(settings(security={"user_id": True}))
    secrets = secure(rig)
    sender = rig.client("sender", user_name="allowed", password=secrets["allowed"])
    sender.send("a", destination=Q)
    sender.send("b", destination=Q, user_id="forged")
    sender.consumer(Q)
    rig.run()
    messages = [dispatch.message for dispatch in sender.take(MessageDispatch)]
    assert [message.user_id for message in messages if message is not None] == ["allowed", "allowed"]
