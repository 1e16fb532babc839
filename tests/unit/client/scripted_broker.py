"""A broker of a script in place of sockets: a connection of the client talks to it, over one link after the other."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from quire.client import channel as channel_module
from quire.client import connect
from quire.client.channel import Channel
from quire.client.connection import Connection
from quire.client.link import Link
from quire.errors import BrokerUnreachable, LimitExceeded
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ActiveMQTextMessage,
    BaseCommand,
    ConsumerId,
    Message,
    MessageAck,
    MessageDispatch,
    MessageId,
    ProducerId,
    Response,
)

FAILOVER = "failover:(tcp://a:1)?initialReconnectDelay=1&maxReconnectDelay=1"


class ScriptedLink:
    """Answers every command that asks for it, as the broker's ``answer`` says."""

    def __init__(self, broker: "ScriptedBroker", owner: Channel) -> None:
        self.provider = broker.provider
        self.is_open = True
        self.written: list[BaseCommand] = []
        self._broker = broker
        self._owner = owner

    def write(self, command: BaseCommand) -> None:
        if isinstance(command, Message) and len(command.content or b"") > self._broker.largest:
            raise LimitExceeded("the frame is too large")
        self.written.append(command)
        if command.response_required and (answer := self._broker.answer(command)) is not None:
            answer.correlation_id = command.command_id
            asyncio.get_running_loop().call_soon(self.receive, answer)

    def receive(self, *commands: BaseCommand) -> None:
        if self.is_open:
            self._owner.received(cast(Link, self), list(commands))

    def lose(self) -> None:
        self.is_open = False
        self._owner.lost(cast(Link, self), BrokerUnreachable("the link of the script is cut"))

    def abort(self) -> None:
        self.is_open = False

    close = abort

    async def closed(self) -> None:
        """It is."""


class ScriptedBroker:
    """Takes what connections say.

    Attributes:
        provider: what it says that it is.
        links: one for each time a connection connected.
        largest: how many bytes a message may have.
        answer: what answers a command that asks for it; None for nothing.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, provider: str = "Quire") -> None:
        self.provider = provider
        self.links: list[ScriptedLink] = []
        self.largest = 1 << 20
        self.answer: Callable[[BaseCommand], Response | None] = lambda command: Response()

        async def open_link(owner: Channel, *_: object) -> ScriptedLink:
            self.links.append(ScriptedLink(self, owner))
            return self.links[-1]

        monkeypatch.setattr(channel_module, "open_link", open_link)

    def connection(self, url: str = FAILOVER, **options: Any) -> Connection:
        """A connection to it."""
        return connect(url, **options)

    def dispatch(
        self, consumer_id: ConsumerId | None, *numbers: int, redeliveries: int = 0, queue: str = "orders",
        text_view: str | None = None,
    ) -> None:  # fmt: skip
        """Give messages to a consumer."""
        for number in numbers:
            message_id = MessageId(ProducerId("ID:p", 1, 1), number, 100 + number, text_view=text_view)
            message = ActiveMQTextMessage(message_id=message_id, destination=ActiveMQQueue(queue))
            self.links[-1].receive(MessageDispatch(consumer_id=consumer_id, destination=ActiveMQQueue(queue),
                                                   message=message, redelivery_counter=redeliveries))  # fmt: skip

    async def lose_link(self, connection: Connection) -> None:
        """Cut the link, and wait until the connection has another one."""
        before = len(self.links)
        self.links[-1].lose()
        async with asyncio.timeout(5):
            while len(self.links) == before or not connection.is_connected:
                await asyncio.sleep(0)

    def acks(self, link: int = -1) -> list[tuple[str, list[int], int]]:
        """The acknowledgements over a link: the kind, the numbers of first and last message, and how many."""
        return [
            (AckType(ack.ack_type).name, [id.producer_sequence_id for id in (ack.first_message_id, ack.last_message_id)
                                          if id is not None], ack.message_count)
            for ack in self.links[link].written if isinstance(ack, MessageAck)
        ]  # fmt: skip


async def settled() -> None:
    """Let everything happen that can happen now."""
    for _ in range(20):
        await asyncio.sleep(0)
