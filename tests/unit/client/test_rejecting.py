"""Messages whose handling fails: which of them come again, and when."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from quire.client import AckMode, Queue, ReceivedMessage, RedeliveryPolicy, Topic
from quire.errors import IllegalState, InvalidArgument
from tests.unit.client.scripted_broker import ScriptedBroker, settled

AT_ONCE = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0, redelivery_delay=0)


def number(message: ReceivedMessage | None) -> int:
    assert message is not None
    assert message.delivery.message.message_id is not None
    return message.delivery.message.message_id.producer_sequence_id


def quiet(error: Exception) -> None:
    """Errors of listeners are part of these tests."""


def test_an_exception_in_an_individual_session_returns_only_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker, pool, seen = ScriptedBroker(monkeypatch), list[ReceivedMessage](), list[tuple[int, int]]()

        async def listener(message: ReceivedMessage) -> None:
            seen.append((number(message), message.delivery_count))
            if number(message) == 3:
                raise ValueError("a bad job")
            pool.append(message)

        connecting = broker.connection(on_error=quiet)
        async with connecting as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = await session.consumer(Queue("jobs"), listener=listener, policy=AT_ONCE)
            broker.dispatch(consumer.info.consumer_id, 1, 2, 3, 4)
            await settled()
            for message in pool:
                await message.acknowledge()
            assert sorted(seen) == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 1)]
            assert broker.acks() == [
                ("REDELIVERED", [3, 3], 1), ("POISON", [3, 3], 1),
                *[("INDIVIDUAL", [number(message)], 1) for message in pool],
            ]  # fmt: skip

    asyncio.run(scenario())


@pytest.mark.parametrize(("mode", "url"), [
    (AckMode.AUTO, ""), (AckMode.AUTO, "&jms.optimizeAcknowledge=true"), (AckMode.DUPS_OK, ""),
])  # fmt: skip
@pytest.mark.parametrize("kind", [Queue, Topic])
def test_a_failed_message_is_in_no_range_that_is_acknowledged_before_it_is_done(
    monkeypatch: pytest.MonkeyPatch, mode: AckMode, url: str, kind: Any
) -> None:
    async def scenario() -> None:
        broker, seen = ScriptedBroker(monkeypatch), list[tuple[int, int]]()

        async def listener(message: ReceivedMessage) -> None:
            seen.append((number(message), message.delivery_count))
            if seen == [(1, 1), (2, 1)]:
                raise ValueError("not yet")

        connecting = broker.connection("failover:(tcp://a:1)?updateURIsSupported=true" + url, on_error=quiet)
        async with connecting as connection, connection.session(mode) as session:
            consumer = await session.consumer(kind("jobs"), listener=listener, policy=AT_ONCE)
            broker.dispatch(consumer.info.consumer_id, 1, 2, 3)
            await settled()
            await consumer.close()
            assert sorted(seen) == [(1, 1), (2, 1), (2, 2), (3, 1)]
            acks = broker.acks()
            assert acks[:2] == [("STANDARD", [1, 1], 1), ("REDELIVERED", [2, 2], 1)]
            assert sum([count for type, _, count in acks[2:]]) == 2
            assert {type for type, _, _ in acks[2:]} == {"STANDARD"}

    asyncio.run(scenario())


@pytest.mark.parametrize("delay", [3600, 3600.0, timedelta(hours=1)])
def test_a_rejected_message_waits_and_those_behind_it_do_not(
    monkeypatch: pytest.MonkeyPatch, delay: float | timedelta
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = await session.consumer(Queue("jobs"))
            broker.dispatch(consumer.info.consumer_id, 1, 2)
            first = await consumer.receive(1)
            assert first is not None
            await first.reject(delay=delay)
            await first.reject(delay=delay)
            assert broker.acks() == [("REDELIVERED", [1, 1], 1)]
            assert number(await consumer.receive(1)) == 2
            assert await consumer.receive(0) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_rejected_message_comes_again_and_counts(monkeypatch: pytest.MonkeyPatch, prefetch: int) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = await session.consumer(Queue("jobs"), prefetch=prefetch, policy=AT_ONCE)
            broker.dispatch(consumer.info.consumer_id, 1)
            message = await consumer.receive(1)
            assert message is not None
            receiving = asyncio.create_task(consumer.receive(60))
            await settled()
            await message.reject(delay=0)
            again = await asyncio.wait_for(receiving, 5)
            assert again is not None
            assert (number(again), again.delivery_count, again.redelivered) == (1, 2, True)
            await again.reject()
            assert [type for type, _, _ in broker.acks() if type != "DELIVERED"] == ["REDELIVERED", "POISON"]

    asyncio.run(scenario())


def test_a_message_that_was_acknowledged_is_not_rejected_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)

        async def listener(message: ReceivedMessage) -> None:
            await message.acknowledge()
            raise ValueError("behind the work")

        connecting = broker.connection(on_error=quiet)
        async with connecting as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = await session.consumer(Queue("jobs"), listener=listener)
            broker.dispatch(consumer.info.consumer_id, 1)
            await settled()
            assert broker.acks() == [("INDIVIDUAL", [1], 1)]

    asyncio.run(scenario())


@pytest.mark.parametrize("delay", [-1, "5", True, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_delay_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, delay: Any) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = await session.consumer(Queue("jobs"))
            broker.dispatch(consumer.info.consumer_id, 1)
            message = await consumer.receive(1)
            assert message is not None
            with pytest.raises(InvalidArgument, match="seconds or a timedelta"):
                await message.reject(delay=delay)
            assert broker.acks() == []

    asyncio.run(scenario())


@pytest.mark.parametrize(("mode", "advice"), [
    (AckMode.AUTO, "raise"), (AckMode.DUPS_OK, "raise"), (AckMode.CLIENT, r"session\.recover"),
    (AckMode.SESSION_TRANSACTED, r"session\.rollback"),
])  # fmt: skip
def test_only_messages_of_individual_sessions_are_rejected(
    monkeypatch: pytest.MonkeyPatch, mode: AckMode, advice: str
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(mode) as session:
            consumer = await session.consumer(Queue("jobs"))
            broker.dispatch(consumer.info.consumer_id, 1)
            message = await consumer.receive(1)
            assert message is not None
            with pytest.raises(IllegalState, match=advice):
                await message.reject()

    asyncio.run(scenario())


@pytest.mark.parametrize(("mode", "lines"), [(AckMode.CLIENT, 1), (AckMode.INDIVIDUAL, 1), (AckMode.AUTO, 0),
                                             (AckMode.SESSION_TRANSACTED, 0)])  # fmt: skip
def test_a_listener_that_returns_without_an_acknowledgement_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: AckMode, lines: int
) -> None:
    caplog.set_level(logging.INFO, "quire")

    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)

        async def listener(message: ReceivedMessage) -> None:
            if number(message) == 1:
                await message.acknowledge()

        async with broker.connection() as connection, connection.session(mode) as session:
            consumer = await session.consumer(Queue("jobs"), listener=listener)
            broker.dispatch(consumer.info.consumer_id, 1)
            await settled()
            assert not caplog.records
            broker.dispatch(consumer.info.consumer_id, 2, 3)
            await settled()

    asyncio.run(scenario())
    told = [record for record in caplog.records if getattr(record, "event", "") == "client.unacknowledged"]
    assert len(told) == lines
    assert all(["ID:p:1:1:2" in record.getMessage() for record in told])
