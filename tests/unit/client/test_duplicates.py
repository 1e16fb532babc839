"""Messages that come again over a new link: those that were finished are acknowledged again, all others delivered."""

import asyncio
import logging
from typing import Any

import pytest

from quire.client import AckMode, Queue, ReceivedMessage, RedeliveryPolicy
from quire.clock import ManualClock
from quire.errors import TransactionRolledBack
from quire.protocols.openwire.commands import BaseCommand, Response, TransactionInfo
from tests.unit.client.scripted_broker import FAILOVER, ScriptedBroker, settled


def numbers(messages: list[ReceivedMessage | None]) -> list[tuple[int, bool]]:
    return [
        (id.producer_sequence_id, message.redelivered)
        for message in messages
        if message is not None and (id := message.delivery.message.message_id) is not None
    ]


async def finish(session: Any, mode: AckMode, message: ReceivedMessage) -> None:
    if mode is AckMode.SESSION_TRANSACTED:
        await session.commit()
    else:
        await message.acknowledge()


@pytest.mark.parametrize("mode", list(AckMode))
@pytest.mark.parametrize("options", ["", "&jms.optimizeAcknowledge=true"])
def test_a_finished_message_that_comes_again_is_acknowledged_again(
    monkeypatch: pytest.MonkeyPatch, mode: AckMode, options: str
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection(FAILOVER + options) as connection, connection.session(mode) as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 1)
            message = await consumer.receive(1)
            assert message is not None
            await finish(session, mode, message)
            await broker.lose_link(connection)
            broker.dispatch(consumer.info.consumer_id, 1, 2, redeliveries=1)
            assert numbers([await consumer.receive(1)]) == [(2, True)]
            assert broker.acks()[0] == ("INDIVIDUAL", [1], 1)
            assert "POISON" not in [kind for kind, _, _ in broker.acks()]
            assert connection.suppressed_duplicates == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL, AckMode.SESSION_TRANSACTED])
def test_what_was_not_finished_is_delivered_again_and_flagged(monkeypatch: pytest.MonkeyPatch, mode: AckMode) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(mode) as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 1)
            assert await consumer.receive(1) is not None
            await broker.lose_link(connection)
            broker.dispatch(consumer.info.consumer_id, 1, redeliveries=1)
            assert numbers([await consumer.receive(1)]) == [(1, True)]
            assert connection.suppressed_duplicates == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.DUPS_OK])
def test_a_message_whose_listener_runs_while_the_link_is_lost_comes_again_only_if_it_fails(
    monkeypatch: pytest.MonkeyPatch, mode: AckMode, fails: bool
) -> None:
    async def scenario() -> None:
        broker, goes_on, seen = ScriptedBroker(monkeypatch), asyncio.Event(), list[tuple[int, bool]]()

        async def listener(message: ReceivedMessage) -> None:
            seen.extend(numbers([message]))
            if len(seen) == 1:
                await goes_on.wait()
                if fails:
                    raise ValueError("half done")

        connecting = broker.connection(on_error=lambda error: None)
        async with connecting as connection, connection.session(mode) as session:
            consumer = await session.consumer(Queue("orders"), listener=listener)
            broker.dispatch(consumer.info.consumer_id, 1)
            await settled()
            await broker.lose_link(connection)
            broker.dispatch(consumer.info.consumer_id, 1, redeliveries=1)
            goes_on.set()
            await settled()
            assert seen == ([(1, False), (1, True)] if fails else [(1, False)])
            assert [kind for kind, _, _ in broker.acks()] == ["STANDARD" if fails else "INDIVIDUAL"]

    asyncio.run(scenario())


def test_a_message_acknowledged_after_its_link_was_lost_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(AckMode.INDIVIDUAL) as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 1)
            message = await consumer.receive(1)
            assert message is not None
            await broker.lose_link(connection)
            broker.dispatch(consumer.info.consumer_id, 1, redeliveries=1)
            await message.acknowledge()
            assert await consumer.receive(0) is None
            assert broker.acks() == [("INDIVIDUAL", [1], 1)]

    asyncio.run(scenario())


def test_a_message_of_a_commit_in_doubt_is_delivered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)

        def silent(command: BaseCommand) -> Response | None:
            return None if isinstance(command, TransactionInfo) else Response()

        async with broker.connection() as connection, connection.session(AckMode.SESSION_TRANSACTED) as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 1)
            assert await consumer.receive(1) is not None
            broker.answer = silent
            committing = asyncio.create_task(session.commit())
            await settled()
            await broker.lose_link(connection)
            with pytest.raises(TransactionRolledBack, match="in doubt"):
                await committing
            broker.answer = lambda command: Response()
            broker.dispatch(consumer.info.consumer_id, 1, redeliveries=1)
            assert numbers([await consumer.receive(1)]) == [(1, True)]

    asyncio.run(scenario())


def test_a_duplicate_is_recognized_by_every_session_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session() as one, connection.session() as two:
            first, second = await one.consumer(Queue("orders")), await two.consumer(Queue("orders"))
            broker.dispatch(first.info.consumer_id, 1)
            assert await first.receive(1) is not None
            await broker.lose_link(connection)
            broker.dispatch(second.info.consumer_id, 1, redeliveries=1)
            assert await second.receive(0) is None
            assert broker.acks() == [("INDIVIDUAL", [1], 1)]

    asyncio.run(scenario())


@pytest.mark.parametrize(("provider", "delivered"), [("Quire", [(1, False)]), ("ActiveMQ", [])])
def test_what_quire_does_not_flag_is_another_message_with_the_same_id(
    monkeypatch: pytest.MonkeyPatch, provider: str, delivered: list[tuple[int, bool]]
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch, provider)
        async with broker.connection() as connection, connection.session() as session:
            consumer = await session.consumer(Queue("orders"))
            for _ in range(2):
                broker.dispatch(consumer.info.consumer_id, 1)
            assert await consumer.receive(1) is not None
            assert numbers([await consumer.receive(0)]) == delivered

    asyncio.run(scenario())


@pytest.mark.parametrize(("ids", "finished"), [(("ID:run-7", "ID:run-7"), 1), (("job-a", "job-b"), 0)])
def test_of_ids_that_no_client_of_openwire_made_only_numbered_ones_are_known(
    monkeypatch: pytest.MonkeyPatch, ids: tuple[str, str], finished: int
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session() as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 7, text_view=ids[0])
            assert await consumer.receive(1) is not None
            broker.dispatch(consumer.info.consumer_id, 7, text_view=ids[1], redeliveries=1)
            assert (await consumer.receive(0) is None) == bool(finished)
            assert connection.suppressed_duplicates == finished

    asyncio.run(scenario())


def test_without_the_check_duplicates_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        url = FAILOVER + "&jms.checkForDuplicates=false"
        async with broker.connection(url) as connection, connection.session() as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 1)
            broker.dispatch(consumer.info.consumer_id, 1, redeliveries=1)
            assert numbers([await consumer.receive(1), await consumer.receive(1)]) == [(1, False), (1, True)]

    asyncio.run(scenario())


def test_duplicates_are_told_once_for_each_lost_link(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quire")

    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session() as session:
            consumer = await session.consumer(Queue("orders"), policy=RedeliveryPolicy())
            broker.dispatch(consumer.info.consumer_id, 1, 2, 3)
            for _ in range(3):
                assert await consumer.receive(1) is not None
            for lost in (1, 2):
                await broker.lose_link(connection)
                broker.dispatch(consumer.info.consumer_id, 1, 2, 3, redeliveries=lost)
                assert await consumer.receive(0) is None
            assert connection.suppressed_duplicates == 6

    asyncio.run(scenario())
    told = [record for record in caplog.records if getattr(record, "event", "") == "client.duplicate"]
    assert len(told) == 2
    assert "ID:p:1:1:1 of queue://orders" in told[0].getMessage()


def test_a_receive_that_is_cancelled_takes_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker, clock = ScriptedBroker(monkeypatch), ManualClock()
        async with broker.connection(clock=clock) as connection, connection.session() as session:
            consumer = await session.consumer(Queue("orders"))
            broker.dispatch(consumer.info.consumer_id, 1)
            clock.advance(1)
            receiving = asyncio.create_task(consumer.receive(60))
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            assert broker.acks() == []
            assert numbers([await consumer.receive(0)]) == [(1, False)]

    asyncio.run(scenario())
