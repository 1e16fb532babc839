"""The browser, for threads."""

from collections.abc import Iterator

from quire.client.browser import Browser as AsyncBrowser
from quire.client.event_loop_thread import EventLoopThread
from quire.client.sync.received_message import ReceivedMessage


class Browser:
    """The messages of a queue as they are, once each; see ``quire.client.Browser``."""

    def __init__(self, loop: EventLoopThread, browser: AsyncBrowser) -> None:
        self._loop = loop
        self._browser = browser

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages."""
        return self

    def __next__(self) -> ReceivedMessage:
        """The next message."""

        async def next_one() -> ReceivedMessage | None:
            # A coroutine cannot raise StopIteration to its caller, nor its asynchronous kind through a future.
            async for message in self._browser:
                return ReceivedMessage(self._loop, message)
            return None

        found = self._loop.run(next_one())
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """Stop browsing."""
        self._loop.run(self._browser.close())
