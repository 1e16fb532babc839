"""The producer: sends messages, and knows when the broker has them."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

from quire.client.arguments import check_whole
from quire.client.destinations import ClientDestination, client_destination
from quire.client.message import Body, Message, Outgoing, PropertyValue, ReceivedMessage, wire_message
from quire.client.session_core import SessionCore
from quire.errors import IllegalState, InvalidArgument, InvalidDestination
from quire.protocols.openwire.commands import Message as WireMessage
from quire.protocols.openwire.commands import MessageId, ProducerId, ProducerInfo, RemoveInfo, Response

WINDOW = 1000
"""How many unconfirmed messages ``submit`` allows by default."""


class Producer:
    """A producer of a session; ``session.producer(...)`` makes one. As a context manager it closes itself.

    Args:
        session: the parts that the session shares.
        info: as the broker was told.
        destination: where its messages go; None if each send says so.
        defaults: what its messages have.
        window: how many messages ``submit`` may have unconfirmed.
        removed: called when it is closed.

    Attributes:
        destination: where its messages go.
    """

    def __init__(
        self, session: SessionCore, info: ProducerInfo, destination: ClientDestination | None, defaults: Outgoing,
        window: int, removed: Callable[[], object],
    ) -> None:  # fmt: skip
        check_whole("window", window, 1)
        assert info.producer_id is not None
        self.destination = destination
        self.id: ProducerId = info.producer_id
        self._session = session
        self._defaults = defaults
        self._window = window
        self._removed = removed
        self._limit = session.options.send_timeout / 1000 or None
        self._sequence = 0
        self._unconfirmed: deque[asyncio.Future[Response]] = deque()
        self._failure: BaseException | None = None
        self._window_bytes = info.window_size
        self._used_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._is_closed = False

    async def send(
        self, body: Body | Message | ReceivedMessage = None, *, destination: ClientDestination | str | None = None,
        properties: Mapping[str, PropertyValue] | None = None, persistent: bool | None = None,
        priority: int | None = None, time_to_live: float | timedelta | None = None,
        reply_to: ClientDestination | str | None = None, correlation_id: str | None = None, type: str | None = None,
    ) -> str:  # fmt: skip
        """Send a message. A persistent one outside of a transaction is stored when this returns.

        Args:
            body: str for a text message, bytes, dict (map), list (stream), None, or a whole message.
            destination: where to, for a producer without a destination; a text is the name of a queue, or begins with
                ``topic://`` or ``stream://``.
            properties: the application's properties.
            persistent: whether it outlives the broker; True by default.
            priority: 0 to 9, 4 by default.
            time_to_live: after how many seconds it expires, or a timedelta; 0: never.
            reply_to: where an answer is expected.
            correlation_id: what ties it to another message.
            type: its type, a word of the application.

        Returns:
            The message's id.

        Raises:
            InvalidArgument: a value has no form in a message.
            QuireError: the broker refused it, or did not answer in time: then it may have it.
        """
        out = self._defaults.changed(persistent, priority, time_to_live)
        message = self._made(body, destination, out, properties, reply_to, correlation_id, type)
        if not self._session.channel.is_ready:
            await self._session.channel.ready()
        if self._is_confirmed(message):
            await self._session.channel.request(message, self._limit)
        else:
            await self._send_unconfirmed(message)
        return str(message.message_id)

    async def submit(
        self, body: Body | Message | ReceivedMessage = None, *, destination: ClientDestination | str | None = None,
        properties: Mapping[str, PropertyValue] | None = None, persistent: bool | None = None,
        priority: int | None = None, time_to_live: float | timedelta | None = None,
        reply_to: ClientDestination | str | None = None, correlation_id: str | None = None, type: str | None = None,
    ) -> "asyncio.Future[Response]":  # fmt: skip
        """Send a message without waiting for its confirmation; waits only while the window is full.

        The arguments are those of ``send``. ``flush`` waits for all of them.

        Returns:
            Done when the broker has confirmed it; its exception is why the broker refused it.
        """
        out = self._defaults.changed(persistent, priority, time_to_live)
        message = self._made(body, destination, out, properties, reply_to, correlation_id, type)
        unconfirmed = self._unconfirmed
        while len(unconfirmed) >= self._window:
            # The oldest is done first; the next `flush` raises its failure.
            await asyncio.wait((unconfirmed[0],))
            self._drop_confirmed()
        if not self._session.channel.is_ready:
            await self._session.channel.ready()
        answer = self._session.channel.request(message, self._limit)
        unconfirmed.append(answer)
        return answer

    async def flush(self) -> None:
        """Wait until everything that was submitted is confirmed.

        Raises:
            QuireError: of the first message that was not; the others are done too.
        """
        unconfirmed, self._unconfirmed = self._unconfirmed, deque()
        results = await asyncio.gather(*unconfirmed, return_exceptions=True)
        failure, self._failure = self._failure, None
        failure = failure or next((result for result in results if isinstance(result, BaseException)), None)
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Wait for the confirmations, and close."""
        if self._is_closed:
            return
        try:
            await self.flush()
        finally:
            self._is_closed = True
            self._removed()
            self._session.post([RemoveInfo(object_id=self.id)])

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def acknowledged(self, size: int) -> None:
        """The broker has taken so many bytes of the producer's window."""
        self._used_bytes = max(0, self._used_bytes - size)
        if self._used_bytes < self._window_bytes:
            self._room.set()

    def resumed(self) -> None:
        """The connection is there again: the broker owes nothing of the window."""
        self._used_bytes = 0
        self._room.set()

    def _made(
        self, body: Body | Message | ReceivedMessage, destination: ClientDestination | str | None, out: Outgoing,
        properties: Mapping[str, PropertyValue] | None, reply_to: ClientDestination | str | None,
        correlation_id: str | None, type: str | None,
    ) -> WireMessage:  # fmt: skip
        session = self._session
        session.check_open()
        if self._is_closed:
            raise IllegalState("the producer is closed")
        target = self.destination if destination is None else client_destination(destination)
        if target is None:
            raise InvalidDestination("give a destination: the producer was made without one")
        if destination is not None:
            if self.destination is not None and target != self.destination:
                raise InvalidArgument(f"the producer is for {self.destination}: make one without a destination",
                                      argument="destination")  # fmt: skip
            session.check_takes(target)
        given = _given(body).changed(properties, reply_to, correlation_id, type)
        if session.tracing is not None:
            given = session.tracing.traced(given, target)
        message = wire_message(given, target, out, session.clock.now_ms())
        self._sequence += 1
        message.producer_id = self.id
        message.message_id = MessageId(self.id, self._sequence)
        message.transaction_id = session.transaction_id()
        return message

    def _is_confirmed(self, message: WireMessage) -> bool:
        options = self._session.options
        if options.always_sync_send:
            return True
        return message.persistent and message.transaction_id is None and not options.use_async_send

    async def _send_unconfirmed(self, message: WireMessage) -> None:
        if self._window_bytes > 0:
            await self._room.wait()
            self._session.check_open()
            self._used_bytes += 1024 + len(message.content or b"") + len(message.marshalled_properties or b"")
            if self._used_bytes >= self._window_bytes:
                self._room.clear()
        self._session.channel.send(message)

    def _drop_confirmed(self) -> None:
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0].done():
            done = unconfirmed.popleft()
            if self._failure is None and not done.cancelled():
                self._failure = done.exception()


def _given(body: Body | Message | ReceivedMessage) -> Message:
    if isinstance(body, Message):
        body.check()
        return body
    return body.to_send() if isinstance(body, ReceivedMessage) else Message(body)
