"""The browser: looks at the messages of a queue without taking them."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from quire.client.consumer import Consumer
from quire.client.received_message import ReceivedMessage


class Browser:
    """The messages of a queue as they are, once each: ``async for message in browser``.

    ``session.browser(...)`` makes one. It closes itself at the end; as a context manager also before the end.

    Args:
        consumer: of the browsing kind.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Itself."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message."""
        message = None if self._consumer.is_closed else await self._consumer.browse()
        if message is None:
            await self.close()
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """Stop browsing."""
        await self._consumer.close()

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()
