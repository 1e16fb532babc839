"""The browser: looks at the messages of a queue without taking them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from quire.client.consumer import Consumer
from quire.client.received_message import ReceivedMessage


class Browser:
    """The messages of a queue as they are, once each: ``async for message in browser``.

    ``session.browser(...)`` makes one. The browse begins with the first message that is asked for. It closes itself at
    the end; as a context manager also before the end.

    Args:
        begin: makes a consumer of the browsing kind.
    """

    def __init__(self, begin: Callable[[], Awaitable[Consumer]]) -> None:
        self._begin = begin
        self._consumer: Consumer | None = None
        self._is_done = False

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Itself."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message."""
        if self._consumer is None:
            self._consumer = await self._begin()
        message = None if self._is_done else await self._consumer.browse()
        if message is None:
            await self.close()
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """Stop browsing."""
        self._is_done = True
        if self._consumer is not None:
            await self._consumer.close()

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()
