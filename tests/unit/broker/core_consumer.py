"""A consumer of a queue without any protocol: for tests of acknowledgements, pulls and XA transactions."""

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.pull import Pull
from quire.message import Message
from quire.selectors import selector
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.recipients import Recipient


class CoreConsumer:
    """A consumer of a queue; what it may be given at once has come."""

    def __init__(self, stepped: SteppedBroker, name: str = "q", *, prefetch: int = 1000, wanted: str = "") -> None:
        self.session = Recipient(stepped)
        self._queue = stepped.queue(name)
        self.subscription = Subscription(
            self.session, self._queue, id="core", ack=AckMode.CLIENT, prefetch=prefetch,
            selector=selector(wanted) if wanted else None,
        )  # fmt: skip
        self._queue.add(self.subscription)
        stepped.run()

    def pull(self, quantity: int = 1, timeout_ms: int = 0) -> Pull:
        return self.session.pull(self.subscription, quantity, timeout_ms)

    @property
    def empty_pulls(self) -> int:
        """How many of its pulls ended without a message."""
        return self.session.errors.count("nothing-came")

    def take(self) -> list[Message]:
        return self.session.take()

    def bodies(self) -> list[bytes]:
        return self.session.bodies()

    def leave(self, *, lost: bool = False) -> None:
        self._queue.remove(self.subscription, "the consumer left", lost=lost)
