"""How many unacknowledged messages the broker may give to each kind of consumer."""

from dataclasses import dataclass

from quire.errors import InvalidArgument

MAX_PREFETCH = 32767
"""The largest prefetch, as in ActiveMQ."""


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """The prefetch of each kind of consumer; 0 means that ``receive`` asks the broker for each message.

    Attributes:
        queue_prefetch: of a consumer of a queue.
        queue_browser_prefetch: of a browser.
        topic_prefetch: of a consumer of a topic.
        durable_topic_prefetch: of a durable subscription.
        optimize_durable_topic_prefetch: of a durable subscription while ``optimize_acknowledge`` is on.
        all: if not negative, the prefetch of every kind, except where one is given beside it.
    """

    queue_prefetch: int = -1
    queue_browser_prefetch: int = -1
    topic_prefetch: int = -1
    durable_topic_prefetch: int = -1
    optimize_durable_topic_prefetch: int = -1
    all: int = -1

    def prefetch(
        self, topic: bool = False, browser: bool = False, durable: bool = False, optimized: bool = False
    ) -> int:
        """The prefetch of a consumer of a kind; never above 32767.

        Args:
            topic: the destination is a topic.
            browser: it is a browser.
            durable: it is a durable subscription.
            optimized: acknowledgements are optimized.
        """
        if browser:
            return self._of(self.queue_browser_prefetch, 500)
        if not topic:
            return self._of(self.queue_prefetch, 1000)
        if durable and optimized:
            return self._of(self.optimize_durable_topic_prefetch, 1000)
        return self._of(self.durable_topic_prefetch, 100) if durable else self._of(self.topic_prefetch, MAX_PREFETCH)

    def _of(self, own: int, default: int) -> int:
        return checked_prefetch(own if own >= 0 else self.all if self.all >= 0 else default)


def checked_prefetch(prefetch: int) -> int:
    """A prefetch that a consumer gave, cut to the largest one.

    Raises:
        InvalidArgument: it is negative.
    """
    if prefetch < 0:
        raise InvalidArgument(f"the prefetch is {prefetch}: give 0 or more", argument="prefetch")
    return min(prefetch, MAX_PREFETCH)
