"""The producer, for threads."""

import concurrent.futures
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, TypedDict, Unpack

from quire.client.destinations import ClientDestination
from quire.client.event_loop_thread import EventLoopThread
from quire.client.message import Body, Message, PropertyValue
from quire.client.producer import Producer as AsyncProducer
from quire.client.sync.received_message import ReceivedMessage


class SendOptions(TypedDict, total=False):
    """The options of ``Producer.send``; see ``quire.client.Producer.send``."""

    destination: ClientDestination | str | None
    properties: Mapping[str, PropertyValue] | None
    persistent: bool | None
    priority: int | None
    time_to_live: float | timedelta | None
    reply_to: ClientDestination | str | None
    correlation_id: str | None
    type: str | None


class Producer:
    """A producer of a session; see ``quire.client.Producer``."""

    def __init__(self, loop: EventLoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer

    def send(self, body: Body | Message | ReceivedMessage = None, **options: Unpack[SendOptions]) -> str:
        """Send a message, and wait until the broker has it; see ``quire.client.Producer.send``.

        Returns:
            The message's id.
        """
        return self._loop.run(self._producer.send(_plain(body), **options))

    def submit(
        self, body: Body | Message | ReceivedMessage = None, **options: Unpack[SendOptions]
    ) -> "concurrent.futures.Future[None]":
        """Send a message without waiting for its confirmation; see ``quire.client.Producer.submit``.

        Returns:
            Done when the broker has confirmed it.
        """
        confirmed: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def submitted() -> None:
            answer = await self._producer.submit(_plain(body), **options)
            answer.add_done_callback(lambda done: _settle(confirmed, done.exception()))

        self._loop.run(submitted())
        return confirmed

    def flush(self) -> None:
        """Wait until everything that was submitted is confirmed; see ``quire.client.Producer.flush``."""
        self._loop.run(self._producer.flush())

    def close(self) -> None:
        """Wait for the confirmations, and close."""
        self._loop.run(self._producer.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _settle(confirmed: "concurrent.futures.Future[None]", error: BaseException | None) -> None:
    if error is None:
        confirmed.set_result(None)
    else:
        confirmed.set_exception(error)


def _plain(body: Body | Message | ReceivedMessage) -> Body | Message:
    return body.to_send() if isinstance(body, ReceivedMessage) else body
