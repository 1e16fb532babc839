"""Browsers of a queue, as OpenWire has them: consumers that are shown messages and take none."""

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.queues.browsing import Browser
from quire.broker.queues.queue import Queue
from quire.broker.routing.addresses import Address, Scope
from quire.server.openwire.openwire_consumer import UNKNOWN, OpenWireConsumer


class OpenWireBrowser(OpenWireConsumer):
    """A browser. A dispatch without a message tells that everything was shown."""

    def _subscription_to(self, address: Address) -> Subscription:
        if address.scope is Scope.COMMON:
            queue: Queue = self._broker.queue(address.name)
        else:
            source = self._own_temporary(address)
            assert isinstance(source, Queue)
            queue = source
        browser = Browser(
            queue, self._session, id=self.id, number=self._table.next_number(),
            ack=AckMode.INDIVIDUAL, ended=self._ended, prefetch=self.prefetch, selector=self._selector,
        )  # fmt: skip
        self._enter(browser.subscription)
        self._broker.core.after_commit(browser.begin)  # by then everything is in the queue that was sent before
        return browser.subscription

    def _ended(self, damaged: int) -> None:
        self._session.send_command(self.nothing())

    def leave(self, cause: str, last_seen: int = UNKNOWN) -> None:
        """It goes."""
        self._table.remove(self._subscription)
        self._subscription.source.remove(self._subscription, cause, lost=False)
