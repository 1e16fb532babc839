"""Requests that wait for their answers: limits of time, and the report of sends that are held."""

import asyncio
import logging

import pytest

from quire.client import channel as channel_module
from quire.client.channel import Unanswered
from quire.clock import ManualClock
from quire.errors import BrokerUnreachable
from quire.protocols.openwire.commands import ActiveMQMessage, ActiveMQQueue, Response, SessionInfo


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "LOOK", 0.001)


def test_a_request_that_is_overdue_fails_and_the_others_wait() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        waiting = Unanswered(clock, 0)
        short = waiting.add(SessionInfo(command_id=1), 1.0, tracked=False)
        long = waiting.add(SessionInfo(command_id=2), 0, tracked=True)
        clock.advance(1.0)
        with pytest.raises(BrokerUnreachable, match=r"SessionInfo within 1\.0 s") as caught:
            await short
        assert caught.value.data == {"waited": 1.0}
        assert (len(waiting), long.done(), waiting.oldest_age()) == (1, False, 1.0)
        assert waiting.take(1) is None
        found = waiting.take(2)
        assert found is not None
        assert found[1] is long
        long.set_result(Response())

    asyncio.run(scenario())


def test_only_what_the_state_does_not_replay_is_sent_again() -> None:
    async def scenario() -> None:
        waiting = Unanswered(ManualClock(), 0)
        for number in (1, 2, 3):
            waiting.add(SessionInfo(command_id=number), 0, tracked=number == 2)
        assert [command.command_id for command in waiting.to_resend()] == [1, 3]

    asyncio.run(scenario())


def test_everything_fails_with_the_connection() -> None:
    async def scenario() -> None:
        waiting = Unanswered(ManualClock(), 0)
        answers = [waiting.add(SessionInfo(command_id=number), 5, tracked=False) for number in (1, 2)]
        answers[0].cancel()
        waiting.fail_all(BrokerUnreachable("lost"))
        with pytest.raises(BrokerUnreachable, match="lost"):
            await answers[1]
        assert len(waiting) == 0

    asyncio.run(scenario())


def test_sends_that_are_held_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        waiting = Unanswered(clock, 5)
        answer = waiting.add(ActiveMQMessage(command_id=1, destination=ActiveMQQueue("full")), 0, tracked=False)
        await asyncio.sleep(0.01)
        assert caplog.records == []
        clock.advance(5)
        await asyncio.sleep(0.02)
        waiting.fail_all(BrokerUnreachable("the end"))
        assert answer.exception() is not None

    with caplog.at_level(logging.WARNING, "quire"):
        asyncio.run(scenario())
    assert [record.__dict__["event"] for record in caplog.records] == ["client.send-blocked"]
    assert "queue://full" in caplog.text
