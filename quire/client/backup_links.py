"""Sockets to other brokers that are open already when the present one is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from quire.client.broker_url import BrokerAddress
from quire.client.link import Link
from quire.errors import BrokerUnreachable, QuireError
from quire.protocols.openwire.commands import KeepAliveInfo
from quire.protocols.openwire.structures import BaseCommand


class BackupLinks:
    """Keeps a few links open; it owns them until one is taken.

    Args:
        size: how many.
        open_link: opens a link that this owns.
    """

    def __init__(self, size: int, open_link: "Callable[[BackupLinks, BrokerAddress], Awaitable[Link]]") -> None:
        self._size = size
        self._open_link = open_link
        self._links: dict[Link, BrokerAddress] = {}

    async def fill(self, addresses: Callable[[], Iterable[BrokerAddress]], pause: float) -> None:
        """Open links to brokers that have none, again and again; runs until it is cancelled.

        Args:
            addresses: the brokers that may have one.
            pause: between two looks, in seconds.
        """
        while True:
            used = {str(address) for address in self._links.values()}
            for address in addresses():
                if len(self._links) < self._size and str(address) not in used:
                    try:
                        self._links[await self._open_link(self, address)] = address
                    except BrokerUnreachable:
                        # It is tried again at the next look.
                        continue
            await asyncio.sleep(pause)

    def take(self) -> tuple[Link, BrokerAddress] | None:
        """A link that is open; None if there is none."""
        return self._links.popitem() if self._links else None

    def close(self) -> None:
        """Close all."""
        links, self._links = self._links, {}
        for link in links:
            link.abort()

    def received(self, link: Link, commands: list[BaseCommand]) -> None:
        """Of the link: the broker introduces itself, and asks for signs of life."""
        for command in commands:
            if isinstance(command, KeepAliveInfo) and command.response_required:
                link.write(KeepAliveInfo())

    def lost(self, link: Link, error: QuireError) -> None:
        """Of the link: the socket is closed."""
        self._links.pop(link, None)

    def writable(self, link: Link, is_writable: bool) -> None:
        """Of the link: nothing is sent on it that could fill it."""
