"""A client deletes queues and topics: by the rules of operators, in steps, and its other commands wait."""

from collections.abc import Iterator

from quire.management.messages import STEP
from quire.protocols.openwire.commands import (
    ActiveMQDestination,
    ActiveMQQueue,
    DestinationInfo,
    DestinationOperation,
    ExceptionResponse,
    Response,
)
from tests.unit.broker.harness import settings
from tests.unit.broker.test_ledger import events, told
from tests.unit.server.openwire.rig import OpenWireClient, Q, Rig, T, thrown


def removal(destination: ActiveMQDestination = Q) -> DestinationInfo:
    return DestinationInfo(destination=destination, operation_type=DestinationOperation.REMOVE)


def filled(rig: Rig, count: int) -> OpenWireClient:
    client = rig.client()
    client.send(*["x"] * count)
    rig.run()
    client.received().clear()
    return client


def commits(rig: Rig) -> Iterator[None]:
    """Comes to each commit, and after the last one."""
    rig.run_turns()
    yield
    while rig.writer.batch is not None:
        rig.commit()
        rig.run_turns()
        yield


def test_the_ledger_knows_of_each_message_of_a_deleted_queue() -> None:
    rig = Rig(settings(policy={"ledger": True, "partitions": 1}))
    client = filled(rig, 2)
    client.done(removal())
    assert [event for event in events(told(rig)) if event[0] == "remove"] == [("remove", 1), ("remove", 2)]


def test_a_large_queue_goes_in_steps_and_what_comes_behind_waits() -> None:
    rig = Rig()
    client = filled(rig, 3 * STEP)
    numbers = [client.request(removal()), client.request(client.message("new"))]
    depths = [rig.depth() for _ in commits(rig)]
    assert depths[:2] == [STEP, 0]
    assert [answer.correlation_id for answer in client.take(Response)] == numbers
    assert rig.depth() == 1
    client.consumer()
    assert client.messages() == ["new"]


def test_several_are_deleted_and_those_that_are_not_there_are_no_error() -> None:
    rig = Rig()
    client = filled(rig, 1)
    client.send("2", destination=ActiveMQQueue("r"))
    client.done(removal(ActiveMQQueue("q,none,r")))
    assert not rig.broker.queues


def test_a_topic_with_a_durable_subscription_is_not_deleted() -> None:
    rig = Rig()
    durable = rig.client(client_id="me")
    id = durable.consumer(T, subscription_name="mine")
    durable.remove(id)
    client = rig.client()
    assert client.refused(removal(T)) == ("JMSException", "destination-in-use")
    assert "t" in rig.broker.destinations.topics


def test_a_client_that_goes_leaves_the_rest_of_a_large_queue() -> None:
    rig = Rig()
    client = filled(rig, 3 * STEP)
    client.tell(removal())
    next(commits(rig))
    client.vanish()
    rig.run()
    assert rig.depth() == STEP


def test_a_queue_that_gets_a_consumer_meanwhile_stays() -> None:
    rig = Rig()
    client, other = filled(rig, 2 * STEP), rig.client()
    number = client.request(removal())
    next(commits(rig))
    other.consumer()
    rig.run()
    (answer,) = client.take(ExceptionResponse)
    assert (answer.correlation_id, thrown(answer)) == (number, ("JMSException", "destination-in-use"))
    assert "q" in rig.broker.queues
