"""What a request makes the broker hold: its body until it is done, its answer until it is read."""

from typing import TYPE_CHECKING

from quire.errors import BrokerBusy

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class RequestMemory:
    """One request's part of the account that unfinished STOMP frames are in too (``Broker.partial_bytes``)."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._taken = 0

    def take(self, size: int) -> None:
        """Hold some bytes more. One request is always given what it needs: if it is alone."""
        broker = self._broker
        if broker.core.partial_bytes + size > broker.core.partial_limit and broker.core.partial_bytes > self._taken:
            held, limit = broker.core.partial_bytes, broker.core.partial_limit
            text = f"requests and frames under way have {held} bytes, the limit is {limit}"
            raise BrokerBusy(text, held=held, limit=limit)
        broker.core.charge_partial(size)
        self._taken += size

    def release(self) -> None:
        """The request is done."""
        self._broker.core.charge_partial(-self._taken)
        self._taken = 0
