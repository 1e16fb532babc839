"""The client against real brokers: messages, acknowledgements, redelivery, subscriptions, requests."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quire.client import (
    AckMode,
    Body,
    Connection,
    Message,
    PropertyValue,
    Queue,
    ReceivedMessage,
    RedeliveryPolicy,
    RemoteError,
    Session,
    Tag,
    Topic,
    Typed,
    connect,
)
from quire.errors import (
    BrokerUnreachable,
    DestinationInUse,
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    InvalidSelector,
    RequestUnanswered,
    UnknownSubscription,
)
from tests.client.proxy import Proxy

pytestmark = pytest.mark.slow

FAST = RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=20, redelivery_delay=20)


async def fill(connection: Connection, queue: Queue | Topic, count: int, **options: Any) -> None:
    async with connection.session() as session, session.producer(queue) as producer:
        for number in range(count):
            await producer.submit(str(number), **options)


async def drain(connection: Connection, queue: Queue, wait: float = 0.3) -> list[ReceivedMessage]:
    found = []
    async with connection.session() as session, await session.consumer(queue) as consumer:
        while (message := await consumer.receive(wait)) is not None:
            found.append(message)
    return found


def bodies(messages: list[ReceivedMessage]) -> list[Any]:
    return [message.body for message in messages]


@pytest.mark.parametrize("options", ["", "?wireFormat.tightEncodingEnabled=true&wireFormat.cacheEnabled=true",
                                     "?jms.useCompression=true", "?wireFormat.version=9"])  # fmt: skip
def test_every_kind_of_message_comes_as_it_went(broker_url: str, name: str, options: str) -> None:
    sent: list[Body] = [
        "text \x00 é 😀",
        b"\x00bytes",
        {"a": 1, "l": [1, 2.5, "x"], "m": {"n": None}},
        [True, 2**40, "s"],
        None,
        "",
    ]
    properties: dict[str, PropertyValue] = {"i": 1, "s": "x", "d": 2.5, "b": True, "short": Typed(Tag.SHORT, 7)}

    async def scenario() -> None:
        async with connect(broker_url + options) as connection, connection.session() as session:
            producer = session.producer(Queue(name), priority=7, time_to_live=60)
            for body in sent:
                await producer.send(body, properties=properties, correlation_id="c", type="t", reply_to=Topic("r"))
            consumer = await session.consumer(Queue(name))
            received = [await consumer.receive(5) for _ in sent]
            assert [message and message.body for message in received] == sent
            for message in received:
                assert message is not None
                assert message.properties == {"i": 1, "s": "x", "d": 2.5, "b": True, "short": 7}
                assert (message.correlation_id, message.type, message.reply_to) == ("c", "t", Topic("r"))
                assert (message.priority, message.persistent, message.destination) == (7, True, Queue(name))
                assert message.expiration == message.timestamp + 60_000
                assert (message.delivery_count, message.redelivered) == (1, False)

    asyncio.run(scenario())


def test_auto_acknowledges_each_message(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection:
            await fill(connection, Queue(name), 5)
            async with connection.session() as session, await session.consumer(Queue(name)) as consumer:
                assert (await consumer.receive(5)) is not None
                assert (await consumer.receive(5)) is not None
            assert bodies(await drain(connection, Queue(name))) == ["2", "3", "4"]

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.DUPS_OK])
@pytest.mark.parametrize("kind", [Queue, Topic])
def test_more_messages_than_the_prefetch_flow(
    broker_url: str, name: str, mode: AckMode, kind: type[Queue] | type[Topic]
) -> None:
    async def scenario() -> None:
        options = "?jms.optimizeAcknowledge=true&jms.prefetchPolicy.all=10"
        async with connect(broker_url + options) as connection, connection.session(mode) as session:
            consumer = await session.consumer(kind(name))
            await fill(connection, kind(name), 95)
            assert [message.body for _ in range(95) if (message := await consumer.receive(5))] == [
                str(number) for number in range(95)
            ]
            await consumer.close()
            if kind is Queue:
                assert await drain(connection, Queue(name)) == []

    asyncio.run(scenario())


def test_client_mode_acknowledges_all_that_was_delivered(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url + "?jms.prefetchPolicy.queuePrefetch=4") as connection:
            await fill(connection, Queue(name), 10)
            async with connection.session(AckMode.CLIENT) as session:
                consumer = await session.consumer(Queue(name))
                # More than the prefetch without an acknowledgement: DELIVERED acknowledgements extend the window.
                received = [await consumer.receive(5) for _ in range(7)]
                assert received[4] is not None
                await received[4].acknowledge()
                for _ in range(2):
                    assert await consumer.receive(5) is not None
            left = await drain(connection, Queue(name))
            assert bodies(left) == ["7", "8", "9"]
            assert [message.redelivered for message in left] == [True, True, False]

    asyncio.run(scenario())


def test_individual_mode_acknowledges_one(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection:
            await fill(connection, Queue(name), 4)
            async with connection.session(AckMode.INDIVIDUAL) as session:
                consumer = await session.consumer(Queue(name))
                received = [await consumer.receive(5) for _ in range(3)]
                assert received[1] is not None
                await received[1].acknowledge()
                await received[1].acknowledge()
            assert bodies(await drain(connection, Queue(name))) == ["0", "2", "3"]

    asyncio.run(scenario())


def test_recover_delivers_again_in_order(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url, policies={Queue("test.>"): FAST}) as connection:
            await fill(connection, Queue(name), 3)
            async with connection.session(AckMode.CLIENT) as session:
                consumer = await session.consumer(Queue(name))
                first = [await consumer.receive(5) for _ in range(2)]
                await session.recover()
                second = [await consumer.receive(5) for _ in range(3)]
                assert [message and message.body for message in first] == ["0", "1"]
                assert [message and (message.body, message.delivery_count) for message in second] == [
                    ("0", 2), ("1", 2), ("2", 1),
                ]  # fmt: skip
                assert second[2] is not None
                await second[2].acknowledge()
            assert await drain(connection, Queue(name)) == []

    asyncio.run(scenario())


def test_transactions_commit_and_roll_back_sends_and_receives(broker_url: str, name: str) -> None:
    source, target = Queue(name), Queue(name + ".target")

    async def move(session: Session, fails: bool) -> int:
        consumer, producer = await session.consumer(source), session.producer(target)
        async with session.transaction():
            message = await consumer.receive(5)
            assert message is not None
            await producer.send(message)
            await consumer.close()
            if fails:
                raise ZeroDivisionError
        return message.delivery_count

    async def scenario() -> None:
        async with connect(broker_url, policies={source: FAST}) as connection:
            await fill(connection, source, 2)
            async with connection.session(AckMode.SESSION_TRANSACTED) as session:
                with pytest.raises(ZeroDivisionError):
                    await move(session, fails=True)
                assert await drain(connection, target) == []
                assert await move(session, fails=False) == 2
            assert bodies(await drain(connection, target)) == ["0"]
            assert bodies(await drain(connection, source)) == ["1"]

    asyncio.run(scenario())


def test_a_message_rolled_back_too_often_is_a_dead_letter(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection:
            await fill(connection, Queue(name), 2, correlation_id=name)
            counts = []
            async with connection.session(AckMode.SESSION_TRANSACTED) as session:
                consumer = await session.consumer(Queue(name), prefetch=1, policy=FAST)
                for _ in range(3):
                    message = await consumer.receive(5)
                    assert message is not None
                    counts.append((message.body, message.delivery_count))
                    await session.rollback()
                assert counts == [("0", 1), ("0", 2), ("0", 3)]
                message = await consumer.receive(5)
                assert message is not None
                assert message.body == "1"
                await session.commit()
            dead = await drain(connection, Queue("ActiveMQ.DLQ"))
            assert bodies([message for message in dead if message.correlation_id == name]) == ["0"]

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.INDIVIDUAL])
def test_a_listener_that_fails_gets_the_message_again(broker_url: str, name: str, mode: AckMode) -> None:
    errors: list[Exception] = []

    async def scenario() -> None:
        got: asyncio.Queue[tuple[Any, int]] = asyncio.Queue()

        async def listener(message: ReceivedMessage) -> None:
            got.put_nowait((message.body, message.delivery_count))
            if message.body == "0" and message.delivery_count < 3:
                raise ValueError("not yet")
            await message.acknowledge()

        async with connect(broker_url, on_error=errors.append) as connection:
            async with connection.session(mode) as session:
                await session.consumer(Queue(name), listener=listener, policy=FAST)
                await fill(connection, Queue(name), 2)
                seen = [await asyncio.wait_for(got.get(), 5) for _ in range(4)]
                assert seen == [("0", 1), ("0", 2), ("0", 3), ("1", 1)]
                await asyncio.sleep(0.1)
            assert await drain(connection, Queue(name)) == []

    asyncio.run(scenario())
    assert [str(error) for error in errors] == ["not yet", "not yet"]


def test_a_bad_job_of_a_pool_takes_no_good_ones_to_the_dead_letters(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        pool: list[ReceivedMessage] = []

        async def listener(message: ReceivedMessage) -> None:
            if message.body == "2":
                raise ValueError("a bad job")
            pool.append(message)

        async with connect(broker_url, on_error=lambda error: None) as connection:
            await fill(connection, Queue(name), 5, correlation_id=name)
            async with connection.session(AckMode.INDIVIDUAL) as session:
                await session.consumer(Queue(name), listener=listener, policy=FAST)
                async with asyncio.timeout(10):
                    while len(pool) < 4:
                        await asyncio.sleep(0.02)
                await pool[0].reject(delay=0.02)
                async with asyncio.timeout(10):
                    while len(pool) < 5:
                        await asyncio.sleep(0.02)
                assert pool[4].delivery_count == 2
                for message in pool[1:]:
                    await message.acknowledge()
            assert await drain(connection, Queue(name)) == []
            dead = await drain(connection, Queue("ActiveMQ.DLQ"))
            assert bodies([message for message in dead if message.correlation_id == name]) == ["2"]

    asyncio.run(scenario())


def test_redelivery_without_blocking_lets_others_pass(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url + "?jms.nonBlockingRedelivery=true") as connection:
            await fill(connection, Queue(name), 3)
            async with connection.session(AckMode.SESSION_TRANSACTED) as session:
                consumer = await session.consumer(Queue(name), policy=RedeliveryPolicy(initial_redelivery_delay=300))
                assert await consumer.receive(5) is not None
                await session.rollback()
                order = []
                for _ in range(3):
                    message = await consumer.receive(5)
                    assert message is not None
                    order.append(message.body)
                    await session.commit()
                assert order == ["1", "2", "0"]
            assert await drain(connection, Queue(name)) == []

    asyncio.run(scenario())


def test_pull_with_a_prefetch_of_zero(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection:
            async with connection.session() as session, await session.consumer(Queue(name), prefetch=0) as consumer:
                assert await consumer.receive(0) is None
                assert await consumer.receive(0.2) is None
                await fill(connection, Queue(name), 3)
                first = None
                while first is None:
                    # ActiveMQ may answer such a pull before it has looked into its store.
                    first = await consumer.receive(0)
                received = [first, await consumer.receive(10), await consumer.receive()]
                assert [message and message.body for message in received] == ["0", "1", "2"]
                waiting = asyncio.create_task(consumer.receive())
                await asyncio.sleep(0.1)
                await fill(connection, Queue(name), 1)
                message = await asyncio.wait_for(waiting, 5)
                assert message is not None
            assert await drain(connection, Queue(name)) == []

    asyncio.run(scenario())


def test_listeners_and_receive_are_not_mixed(broker_url: str, name: str) -> None:
    async def listener(message: ReceivedMessage) -> None:
        """Take it."""

    async def scenario() -> None:
        async with connect(broker_url) as connection, connection.session() as session:
            with pytest.raises(IllegalState, match="prefetch"):
                await session.consumer(Queue(name), prefetch=0, listener=listener)
            consumer = await session.consumer(Queue(name), listener=listener)
            with pytest.raises(IllegalState, match="listener"):
                await consumer.receive(0)
            with pytest.raises(IllegalState, match="listener"):
                await session.consumer(Queue(name))

    asyncio.run(scenario())


def test_a_browser_takes_nothing_and_ends(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url + "?jms.prefetchPolicy.queueBrowserPrefetch=50") as connection:
            await fill(connection, Queue(name), 180)
            async with connection.session(AckMode.SESSION_TRANSACTED) as session:
                assert [message.body async for message in session.browser(Queue(name))] == [
                    str(number) for number in range(180)
                ]
                chosen = session.browser(Queue(name), selector="JMSPriority > 4")
                assert [message async for message in chosen] == []
            assert len(await drain(connection, Queue(name))) == 180

    asyncio.run(scenario())


def test_a_durable_subscription_keeps_messages(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        topic = Topic(name)
        async with connect(broker_url, client_id=name) as connection, connection.session() as session:
            consumer = await session.consumer(topic, name="sub")
            with pytest.raises(DestinationInUse):
                await session.unsubscribe("sub")
            await consumer.close()
            await fill(connection, topic, 2)
            async with await session.consumer(topic, name="sub") as consumer:
                assert [m.body for _ in range(2) if (m := await consumer.receive(5))] == ["0", "1"]
            await session.unsubscribe("sub")
            with pytest.raises(UnknownSubscription):
                await session.unsubscribe("sub")

    asyncio.run(scenario())


def test_requests_are_answered(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with (
            connect(broker_url) as server,
            connect(broker_url) as client,
            server.session() as replies,
            client.session() as session,
        ):
            producer = replies.producer()

            async def answer(message: ReceivedMessage) -> None:
                assert isinstance(message.body, str)
                await producer.send(message.body.upper(), destination=message.reply_to,
                                    correlation_id=message.correlation_id)  # fmt: skip

            await replies.consumer(Queue(name), listener=answer)
            answers = await asyncio.gather(*(session.request(Queue(name), text) for text in ("a", "b", "c")))
            assert bodies(answers) == ["A", "B", "C"]
            with pytest.raises(RequestUnanswered, match=r"within 0\.2 s"):
                await session.request(Queue(name + ".unheard"), "x", timeout=0.2)
            with pytest.raises(TimeoutError):
                await session.request(Queue(name + ".unheard"), "x", timeout=0.01)

    asyncio.run(scenario())


def test_temporary_destinations_belong_to_their_connection(broker_url: str) -> None:
    async def scenario() -> None:
        async with (
            connect(broker_url) as owner,
            connect(broker_url) as other,
            owner.session() as session,
            other.session() as foreign,
        ):
            queue = await session.temporary_queue()
            consumer = await session.consumer(queue)
            await foreign.producer(queue).send("hello", persistent=False)
            message = await consumer.receive(5)
            assert message is not None
            with pytest.raises((InvalidDestination, RemoteError)):
                await foreign.consumer(queue)
            await consumer.close()
            await session.delete_temporary(queue)

    asyncio.run(scenario())


def test_wildcards_composites_selectors_and_options_of_names(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection, connection.session() as session:
            producer = session.producer()
            await producer.send("both", destination=Queue(f"{name}.a,{name}.b"), properties={"n": 5})
            await producer.send("one", destination=Queue(f"{name}.a"), properties={"n": 1})
            consumer = await session.consumer(Queue(f"{name}.*?consumer.prefetchSize=2&consumer.selector=n%20%3E%203"))
            assert consumer.info.prefetch_size == 2
            received = [await consumer.receive(5), await consumer.receive(5), await consumer.receive(0.2)]
            assert [message and message.body for message in received] == ["both", "both", None]
            with pytest.raises(InvalidSelector):
                await session.consumer(Queue(name), selector="n >")
            with pytest.raises(InvalidArgument, match=r"consumer\.prefetchSize"):
                await session.consumer(Queue(f"{name}?consumer.prefetchsiz=2"))

    asyncio.run(scenario())


def test_an_expired_message_is_not_delivered(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection, connection.session() as session:
            consumer = await session.consumer(Queue(name))
            await session.producer(Queue(name)).send("short", time_to_live=0.05)
            await session.producer(Queue(name)).send("long")
            await asyncio.sleep(0.2)
            message = await consumer.receive(5)
            assert message is not None
            assert message.body == "long"

    asyncio.run(scenario())


def test_a_message_group_is_carried(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url) as connection, connection.session() as session:
            await session.producer(Queue(name)).send(Message("x", group_id="g", group_sequence=3))
            message = await (await session.consumer(Queue(name))).receive(5)
            assert message is not None
            assert (message.group_id, message.group_sequence) == ("g", 3)

    asyncio.run(scenario())


def test_a_client_id_is_used_once(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with connect(broker_url, client_id=name):
            with pytest.raises(InvalidArgument, match=name):
                await connect(broker_url, client_id=name).open()

    asyncio.run(scenario())


def test_a_window_of_bytes_holds_unconfirmed_sends(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        url = broker_url + "?jms.useAsyncSend=true&jms.producerWindowSize=4096"
        async with connect(url) as connection, connection.session() as session:
            producer = session.producer(Queue(name))
            for number in range(50):
                await asyncio.wait_for(producer.send(str(number)), 5)
            assert len(await drain(connection, Queue(name))) == 50

    asyncio.run(scenario())


def test_tls_is_spoken_and_checked(broker_url: str, name: str, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the certificate needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)

    async def scenario() -> None:
        async with Proxy(broker_url, served) as proxy:
            trusting = ssl.create_default_context(cafile=str(certificate))
            async with connect(proxy.url, tls=trusting) as connection, connection.session() as session:
                await session.producer(Queue(name)).send("secret")
                message = await (await session.consumer(Queue(name))).receive(5)
                assert message is not None
                assert message.body == "secret"
            with pytest.raises(BrokerUnreachable, match="certificate"):
                await connect(proxy.url).open()

    asyncio.run(scenario())
