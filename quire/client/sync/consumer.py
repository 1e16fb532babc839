"""The consumer, for threads."""

from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Self

from quire.client.consumer import Consumer as AsyncConsumer
from quire.client.event_loop_thread import EventLoopThread
from quire.client.sync.received_message import ReceivedMessage


class Consumer:
    """A consumer of a session; see ``quire.client.Consumer``."""

    def __init__(self, loop: EventLoopThread, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def receive(self, timeout: float | timedelta | None = None) -> ReceivedMessage | None:
        """Take the next message; see ``quire.client.Consumer.receive``.

        Args:
            timeout: how long to wait for one, in seconds or as a timedelta; 0: take one that is there; None: without a
                limit.

        Returns:
            The message; None when the time is over, or when the consumer is closed meanwhile.
        """
        message = self._loop.run(self._consumer.receive(timeout))
        return None if message is None else ReceivedMessage(self._loop, message)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages as they come, until the consumer is closed."""
        while not self._consumer.is_closed and (message := self.receive()) is not None:
            yield message

    def close(self) -> None:
        """Close it; see ``quire.client.Consumer.close``."""
        self._loop.run(self._consumer.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
