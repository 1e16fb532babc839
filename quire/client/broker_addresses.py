"""Which brokers a connection may use, and in which order they are tried."""

import logging
from random import Random

from quire import logs
from quire.client.broker_url import BrokerAddress, BrokerUrl, read_address
from quire.client.failover_options import FailoverOptions
from quire.errors import InvalidArgument

MOST = 100
"""How many brokers a broker may name."""


class BrokerAddresses:
    """The brokers of a connection: those of its URL, and those that its broker names.

    Args:
        url: the connection's.
        options: the order, and which brokers are preferred.
        random: for a random order.

    Attributes:
        current: the broker that the connection has at present.
    """

    def __init__(self, url: BrokerUrl, options: FailoverOptions, random: Random) -> None:
        self._own = list(url.addresses)
        self._nested = url.nested
        self._options = options
        self._random = random
        self._named: list[BrokerAddress] = []
        self._next: BrokerAddress | None = None
        preferred = [uri.strip() for uri in options.priority_uris.split(",") if uri.strip()]
        self._preferred = [read_address(uri, self._nested) for uri in preferred] or self._own[:1]
        self.current: BrokerAddress | None = None

    def next_round(self) -> list[BrokerAddress]:
        """Each broker once, in the order to try them: where the connection was sent to, then the preferred ones."""
        known = {str(address): address for address in [*self._named, *self._own]}
        found = list(known.values())
        if self._options.randomize:
            self._random.shuffle(found)
        if self._options.priority_backup:
            preferred = {str(address) for address in self._preferred}
            found.sort(key=lambda address: str(address) not in preferred)
        if self._next is not None:
            found = [self._next, *(address for address in found if str(address) != str(self._next))]
            self._next = None
        return found

    def others(self) -> list[BrokerAddress]:
        """Every broker but the present one."""
        known = {str(address): address for address in [*self._own, *self._named]}
        return [address for key, address in known.items() if key != str(self.current)]

    def update(self, uris: str) -> None:
        """The broker named the brokers of its cluster, joined by commas."""
        self._named = [address for uri in uris.split(",")[:MOST] if (address := self._read(uri)) is not None]

    def go_to(self, uri: str) -> None:
        """Try this broker first in the next round."""
        self._next = self._read(uri) or self._next

    def preferred(self) -> list[BrokerAddress]:
        """The preferred brokers."""
        return self._preferred

    def is_preferred(self) -> bool:
        """Whether the present broker is a preferred one."""
        return str(self.current) in {str(address) for address in self._preferred}

    def _read(self, uri: str) -> BrokerAddress | None:
        if not uri.strip():
            return None
        try:
            # The options of an address that a broker names are those of its listener.
            return read_address(uri.strip().partition("?")[0], self._nested)
        except InvalidArgument as error:
            logs.event("client.bad-address", f"the broker named an address that is none: {error}", logging.WARNING)
            return None
