"""The client without asyncio, against real brokers."""

import queue
import threading
import time
from typing import Any

import pytest

from quire.client import AckMode, Queue, RedeliveryPolicy, sync
from quire.errors import BrokerUnreachable, IllegalState, InvalidArgument, RequestUnanswered

pytestmark = pytest.mark.slow


def test_messages_are_sent_received_browsed_and_acknowledged(broker_url: str, name: str) -> None:
    with sync.connect(broker_url) as connection, connection.session(AckMode.CLIENT) as session:
        with session.producer(Queue(name)) as producer:
            producer.send("one", properties={"n": 1})
            confirmed = producer.submit({"two": 2})
            producer.flush()
            assert confirmed.result(5) is None
        assert [message.body for message in session.browser(Queue(name))] == ["one", {"two": 2}]
        with session.consumer(Queue(name)) as consumer:
            first, second = consumer.receive(5), consumer.receive(5)
            assert first is not None
            assert second is not None
            assert (first.body, first.properties, second.body) == ("one", {"n": 1}, {"two": 2})
            second.acknowledge()
            session.producer(Queue(name + ".on")).send(first)
            assert first.priority == 4
            with session.consumer(Queue(name + ".on")) as other:
                passed_on = other.receive(5)
                assert passed_on is not None
                assert (passed_on.body, passed_on.properties) == ("one", {"n": 1})
            assert consumer.receive(0.1) is None
    threads = [thread.name for thread in threading.enumerate()]
    assert not any(thread.startswith(("quire-client", "quire-listener")) for thread in threads)


def test_transactions_and_requests(broker_url: str, name: str) -> None:
    with sync.connect(broker_url) as connection:
        with connection.session(AckMode.SESSION_TRANSACTED) as session:
            producer = session.producer(Queue(name))
            with pytest.raises(ZeroDivisionError), session.transaction():
                _fail_after_sending(producer)
            with session.transaction():
                producer.send("kept")
        with connection.session() as session, session.consumer(Queue(name)) as consumer:
            found = [message.body for message in iter(lambda: consumer.receive(0.3), None)]
            assert found == ["kept"]
            with pytest.raises(IllegalState), session.transaction():
                pass
        with connection.session() as session, pytest.raises(RequestUnanswered):
            session.request(Queue(name), "x", timeout=0.1)


def test_a_busy_listener_starves_no_heart_beat(broker_url: str, name: str) -> None:
    got: queue.Queue[object] = queue.Queue()
    url = broker_url + "?wireFormat.maxInactivityDuration=600&wireFormat.maxInactivityDurationInitalDelay=100"

    def listener(message: sync.ReceivedMessage) -> None:
        time.sleep(2)
        got.put(message.body)

    with sync.connect(url) as connection, connection.session() as session:
        session.consumer(Queue(name), listener=listener)
        with connection.session() as other:
            other.producer(Queue(name)).send("slow")
        assert got.get(timeout=60) == "slow"
        assert connection.is_connected


def test_a_listener_without_asyncio_is_no_coroutine_function(broker_url: str, name: str) -> None:
    async def listener(message: sync.ReceivedMessage) -> None:
        """It would never run, and its message would be acknowledged."""

    with sync.connect(broker_url) as connection, connection.session() as session:
        with pytest.raises(InvalidArgument, match="plain function"):
            session.consumer(name, listener=listener)  # type: ignore[arg-type]
        calls: queue.Queue[str] = queue.Queue()

        def disguised(message: sync.ReceivedMessage) -> Any:
            calls.put(message.id)
            return listener(message)

        session.consumer(name, listener=disguised, policy=RedeliveryPolicy(initial_redelivery_delay=20))
        session.producer(name).send("x", reply_to="topic://news")
        assert calls.get(timeout=60) == calls.get(timeout=60)


def test_a_call_in_the_thread_of_the_connection_does_not_wait_for_itself(broker_url: str, name: str) -> None:
    told: queue.Queue[str] = queue.Queue()

    def on_error(error: Exception) -> None:
        with pytest.raises(IllegalState, match="thread") as caught:
            session.recover()
        told.put(str(caught.value))

    def listener(message: sync.ReceivedMessage) -> None:
        raise ValueError("no milk")

    with sync.connect(broker_url, on_error=on_error) as connection, connection.session() as session:
        session.consumer(name, listener=listener, policy=RedeliveryPolicy(maximum_redeliveries=0))
        session.producer(name).send("x")
        assert "another thread" in told.get(timeout=60)


def test_what_is_not_open_says_so() -> None:
    with pytest.raises(IllegalState):
        sync.connect("tcp://127.0.0.1:1").session()
    with pytest.raises(BrokerUnreachable):
        sync.connect("tcp://127.0.0.1:1").open()


def _fail_after_sending(producer: sync.Producer) -> None:
    producer.send("lost")
    raise ZeroDivisionError
