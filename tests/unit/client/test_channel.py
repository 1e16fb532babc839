"""The commands of a connection over links that come and go, without a socket."""

import asyncio
from random import Random
from typing import cast

import pytest

from quire.client import AckMode
from quire.client import channel as channel_module
from quire.client.channel import Channel
from quire.client.link import Link
from quire.client.options import read_url
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, QuireError, TransactionRolledBack
from quire.protocols.openwire.commands import (
    ActiveMQMessage,
    BaseCommand,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ExceptionResponse,
    KeepAliveInfo,
    Response,
    SessionId,
    SessionInfo,
    Throwable,
    TransactionInfo,
)
from tests.unit.client.scripted_broker import ScriptedBroker


class FakeLink:
    """Answers the first command; ``dies_with_answer`` loses it in the same turn of the loop."""

    provider = "Quire"

    def __init__(self, owner: Channel, dies_with_answer: bool = False, is_open: bool = True) -> None:
        self.owner = owner
        self.dies_with_answer = dies_with_answer
        self.is_open = is_open
        self.written: list[BaseCommand] = []

    def write(self, command: BaseCommand) -> None:
        self.written.append(command)
        if isinstance(command, ConnectionInfo):
            asyncio.get_running_loop().call_soon(self.answer, command.command_id)

    def answer(self, number: int) -> None:
        self.owner.received(cast(Link, self), [Response(correlation_id=number)])
        if self.dies_with_answer:
            self.lose()

    def lose(self) -> None:
        self.is_open = False
        self.owner.lost(cast(Link, self), BrokerUnreachable("lost"))

    def abort(self) -> None:
        self.is_open = False

    close = abort

    async def closed(self) -> None:
        """It is."""


class Owner:
    """Notes what a channel tells."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def dispatched(self, command: BaseCommand) -> None:
        self.told.append(type(command).__name__)

    def interrupted(self) -> None:
        self.told.append("interrupted")

    def resumed(self) -> None:
        self.told.append("resumed")

    def failed(self, error: QuireError) -> None:
        self.told.append("failed")


class Scene:
    """A channel whose links are made as it is told: each a dictionary of arguments of ``FakeLink``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str, *links: dict[str, bool]) -> None:
        self.owner = Owner()
        self.links: list[FakeLink] = []
        self.channel = Channel(read_url(url), self.owner, SystemClock(), Random(1), None)
        planned = iter(links)

        async def open_link(owner: Channel, *_: object) -> FakeLink:
            self.links.append(FakeLink(owner, **next(planned)))
            return self.links[-1]

        monkeypatch.setattr(channel_module, "open_link", open_link)

    async def opened(self) -> None:
        await self.channel.open(ConnectionInfo(connection_id=ConnectionId("ID:c")))

    async def resumed(self) -> None:
        async with asyncio.timeout(5):
            while "resumed" not in self.owner.told:
                await asyncio.sleep(0.001)


FAILOVER = "failover:(tcp://a:1)?initialReconnectDelay=1&maxReconnectDelay=1"


def test_a_link_lost_with_or_before_its_first_answer_is_not_taken_for_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        scene = Scene(monkeypatch, FAILOVER, {}, {"dies_with_answer": True}, {"is_open": False}, {})
        await scene.opened()
        scene.links[0].lose()
        await scene.resumed()
        assert len(scene.links) == 4
        assert scene.owner.told == ["interrupted", "resumed"]
        scene.channel.send(SessionInfo(session_id=SessionId("ID:c", 1)))
        assert isinstance(scene.links[3].written[-1], SessionInfo)
        await scene.channel.close()

    asyncio.run(scenario())


def test_unanswered_commands_go_again_with_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        scene = Scene(monkeypatch, FAILOVER, {}, {})
        await scene.opened()
        scene.channel.send(SessionInfo(session_id=SessionId("ID:c", 1)))
        message = ActiveMQMessage()
        answer = scene.channel.request(message)
        scene.links[0].lose()
        later = scene.channel.request(ActiveMQMessage())
        await scene.resumed()
        control, info, session, first, second = scene.links[1].written
        assert (type(control).__name__, info.command_id > 0, type(session)) == ("ConnectionControl", True, SessionInfo)
        assert first is message
        scene.links[1].answer(second.command_id)
        scene.links[1].answer(first.command_id)
        await answer
        await later
        await scene.channel.close()

    asyncio.run(scenario())


def test_without_failover_everything_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        scene = Scene(monkeypatch, "tcp://a:1", {})
        await scene.opened()
        answer = scene.channel.request(ActiveMQMessage())
        scene.links[0].lose()
        with pytest.raises(BrokerUnreachable):
            await answer
        with pytest.raises(BrokerUnreachable):
            scene.channel.send(KeepAliveInfo())
        assert scene.owner.told == ["failed"]

    asyncio.run(scenario())


def test_a_sign_of_life_is_answered_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        scene = Scene(monkeypatch, "tcp://a:1", {})
        await scene.opened()
        link = scene.links[0]
        scene.channel.received(cast(Link, link), [KeepAliveInfo(), KeepAliveInfo(response_required=True)])
        assert [type(command).__name__ for command in link.written] == ["ConnectionInfo", "KeepAliveInfo"]
        assert not link.written[-1].response_required
        await scene.channel.close()

    asyncio.run(scenario())


def refusal(text: str) -> Throwable:
    return Throwable("javax.jms.TransactionRolledBackException", f"transaction-rolled-back: {text}")


@pytest.mark.parametrize("told", ["answer", "connection error"])
def test_a_connection_that_the_broker_closes_after_an_error_says_that_error(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    async def scenario() -> None:
        broker, errors = ScriptedBroker(monkeypatch), list[Exception]()

        def refuse(command: BaseCommand) -> Response:
            is_commit = told == "answer" and isinstance(command, TransactionInfo)
            return ExceptionResponse(exception=refusal("message 7 is not in flight")) if is_commit else Response()

        broker.answer = refuse
        connection = await broker.connection("tcp://a:1", on_error=errors.append).open()
        session = connection.session(AckMode.SESSION_TRANSACTED)
        producer = session.producer("orders")
        await producer.send("x")
        if told == "answer":
            with pytest.raises(TransactionRolledBack, match="not in flight"):
                await session.commit()
        else:
            broker.links[-1].receive(ConnectionErrorCommand(exception=refusal("message 7 is not in flight")))
        broker.links[-1].lose()
        for call in (lambda: producer.send("y"), session.commit):
            with pytest.raises(BrokerUnreachable, match="message 7 is not in flight") as caught:
                await call()
            assert isinstance(caught.value.__cause__, TransactionRolledBack)
        assert "message 7 is not in flight" in str(errors[-1])

    asyncio.run(scenario())


def test_an_error_that_the_broker_told_earlier_is_not_why_it_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        connection = await broker.connection("tcp://a:1", on_error=lambda error: None).open()
        producer = connection.session().producer("orders")
        broker.links[-1].receive(ConnectionErrorCommand(exception=refusal("an old story")))
        await producer.send("x")
        broker.links[-1].lose()
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send("y")
        assert "an old story" not in str(caught.value)

    asyncio.run(scenario())
