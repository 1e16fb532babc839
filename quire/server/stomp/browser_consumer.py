"""Browsers of a queue."""

from quire.broker.core.subscription import Subscription
from quire.broker.queues.browsing import Browser
from quire.broker.queues.queue import Queue
from quire.broker.routing.addresses import Address, Scope
from quire.server.stomp.message_frames import marker
from quire.server.stomp.single_consumer import SingleConsumer


class BrowserConsumer(SingleConsumer):
    """A browser: it is shown messages and takes none."""

    not_rejectable = "a browser's messages cannot be rejected: they are still in their queue"

    def _subscribed(self, address: Address) -> Subscription:
        request, shown = self._request, address
        if address.scope is Scope.COMMON:
            queue: Queue = self._broker.queue(address.name)
        else:
            shown, source = self._own_temporary(address)
            assert isinstance(source, Queue)
            queue = source
        browser = Browser(
            queue, self._session, id=request.id, number=self._number(), ack=request.ack, ended=self._has_shown_all,
            prefetch=queue.policy.queue_browser_prefetch if request.prefetch is None else request.prefetch,
            selector=request.selector,
        )  # fmt: skip
        self._enter(browser.subscription, str(shown))
        self._broker.core.after_commit(browser.begin)  # by then everything is in the queue that was sent before
        return browser.subscription

    def _has_shown_all(self, damaged: int) -> None:
        headers = b"browser:end\n" + (b"damaged:%d\n" % damaged if damaged else b"")
        self._session.write(marker(self._subscription, headers, self._session.version))

    def _tell_gone(self, subscription: Subscription) -> None:
        """It was no consumer of the queue."""
