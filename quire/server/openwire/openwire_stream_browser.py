"""Browsers of a stream, as OpenWire has them: they are shown everything, from the first message to the last."""

from quire.broker.core.subscription import Subscription
from quire.broker.routing.addresses import Address
from quire.broker.streams.stream import StreamBrowser
from quire.errors import InvalidArgument
from quire.server.openwire.dispatch_frames import StreamFrames, number_of
from quire.server.openwire.openwire_browser import OpenWireBrowser
from quire.server.openwire.openwire_destinations import openwire_destination


class OpenWireStreamBrowser(OpenWireBrowser):
    """A browser. A dispatch without a message tells that everything was shown."""

    def _subscription_to(self, address: Address) -> Subscription:
        if self.info.subscription_name is not None:
            raise InvalidArgument("a browser is no member of a group: it shows all messages", argument="destination")
        browser = StreamBrowser(
            self._broker.stream(address.name), self._session, number_of, id=self.id, number=self._table.next_number(),
            prefetch=self.prefetch, selector=self._selector, ended=self._ended,
        )  # fmt: skip
        shown = openwire_destination(address.kind, address.name)
        assert self.info.consumer_id is not None
        self._table.enter(browser.subscription, StreamFrames(self._session, self.info.consumer_id, shown))
        self._broker.core.after_commit(browser.begin)  # by then everything is in the stream that was sent before
        return browser.subscription
