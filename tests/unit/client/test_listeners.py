"""Listeners that fail: what the log and the application are told, and that the next message comes."""

import asyncio
import json
import logging
from typing import Any

import pytest

from quire import logs
from quire.client import AckMode, Queue, ReceivedMessage, RedeliveryPolicy
from tests.unit.client.scripted_broker import FAILOVER, ScriptedBroker, settled

ONCE = RedeliveryPolicy(maximum_redeliveries=0)


async def failing(message: ReceivedMessage) -> None:
    raise ValueError("no milk")


async def listened(broker: ScriptedBroker, listener: Any, *numbers: int, **options: Any) -> None:
    """Give messages to a listener."""
    async with broker.connection(FAILOVER, **options) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        consumer = await session.consumer(Queue("coffee.*"), listener=listener, policy=ONCE)
        broker.dispatch(consumer.info.consumer_id, *numbers, redeliveries=2, queue="coffee.black")
        await settled()


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, logging.LogRecord]]:
    return [(getattr(record, "event", ""), record) for record in caplog.records]


def test_a_listener_that_fails_logs_what_where_and_with_which_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quire")
    asyncio.run(listened(ScriptedBroker(monkeypatch), failing, 7))
    ((event, record),) = events(caplog)
    assert event == "client.listener-failed"
    text = "the listener of queue://coffee.black raised ValueError('no milk') for message ID:p:1:1:7, delivery 3"
    assert record.getMessage() == text
    line = json.loads(logs.JsonFormatter().format(record))
    data = [line[name] for name in ("destination", "message_id", "delivery_count")]
    assert data == ["queue://coffee.black", "ID:p:1:1:7", 3]
    assert 'raise ValueError("no milk")' in line["exception"]


def test_who_is_told_of_errors_gets_the_message_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, str | None]]()

    def on_error(error: Exception, message: ReceivedMessage | None) -> None:
        told.append((str(error), None if message is None else message.id))

    asyncio.run(listened(ScriptedBroker(monkeypatch), failing, 7, on_error=on_error))
    assert told == [("no milk", "ID:p:1:1:7")]


def test_who_takes_only_the_error_gets_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Exception]()
    asyncio.run(listened(ScriptedBroker(monkeypatch), failing, 7, on_error=told.append))
    assert [str(error) for error in told] == ["no milk"]


def test_errors_of_no_message_come_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, object]]()

    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection("tcp://a:1", on_error=lambda error, message=0: told.append((str(error), message))):
            broker.links[-1].lose()

    asyncio.run(scenario())
    assert told == [("the link of the script is cut", None)]


def test_a_report_that_fails_stops_no_listener(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[str]()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.id)
        raise ValueError("no milk")

    def on_error(error: Exception) -> None:
        raise KeyError("a defect of the report")

    asyncio.run(listened(ScriptedBroker(monkeypatch), listener, 1, 2, on_error=on_error))
    assert seen == ["ID:p:1:1:1", "ID:p:1:1:2"]
    assert "client.error" in [event for event, _ in events(caplog)]


def test_a_listener_that_is_cancelled_from_within_has_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[str]()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.id)
        work = asyncio.ensure_future(asyncio.sleep(60))
        work.cancel()
        await work

    asyncio.run(listened(ScriptedBroker(monkeypatch), listener, 1, 2))
    assert seen == ["ID:p:1:1:1", "ID:p:1:1:2"]
    assert [event for event, _ in events(caplog)] == ["client.listener-failed"] * 2
