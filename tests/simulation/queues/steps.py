"""The steps that a history of queues is made of. Without anything to act on, each of them does nothing."""

from tests.simulation.queues.promises import Draft
from tests.simulation.queues.subscribed import AckMode, Subscribed
from tests.simulation.queues.world import QueueWorld
from tests.simulation.steps import CommonStep, Step


class Send(Step, frozen=True):
    """A client sends messages, and connects before if it has to.

    Attributes:
        client: who.
        queue: where to.
        size: how long each body is, in bytes.
        count: how many.
        persistent: whether they must survive a crash.
        receipt: whether it asks for receipts.
        ttl: in how many seconds they expire; 0 for never.
        priority: 0 to 9.
        group: their message group; empty for none.
        color: a header that consumers may select by.
    """

    client: str
    queue: str
    size: int = 0
    count: int = 1
    persistent: bool = True
    receipt: bool = False
    ttl: float = 0
    priority: int = 4
    group: str = ""
    color: str = ""

    def act(self, world: QueueWorld) -> None:
        """Send."""
        expiration = world.right.now_ms() + round(self.ttl * 1000) if self.ttl else 0
        draft = Draft(self.queue, b"x" * self.size, self.persistent, expiration, self.priority, self.group, self.color)
        for _ in range(self.count):
            world.client(self.client).send(draft, receipt=self.receipt)


class Subscribe(Step, frozen=True):
    """A client subscribes, unless it has a subscription.

    Attributes:
        client: who.
        queue: to which queue.
        ack: how it acknowledges.
        prefetch: how many messages it may have in flight.
        version: the version of STOMP that it speaks, if it connects now.
        color: what it selects; empty for everything.
        exclusive: whether it wants everything for itself.
        priority: consumers with a higher one come first.
    """

    client: str
    queue: str
    ack: AckMode = "client-individual"
    prefetch: int = 100
    version: str = "1.2"
    color: str = ""
    exclusive: bool = False
    priority: int = 0

    def act(self, world: QueueWorld) -> None:
        """Subscribe."""
        client = world.client(self.client, self.version)
        if client.subscribed is None and not client.is_stuck:
            subscribed = Subscribed(
                world.promises, self.queue, ack=self.ack, prefetch=self.prefetch, color=self.color,
                exclusive=self.exclusive, priority=self.priority,
            )  # fmt: skip
            world.subscribe(client, subscribed)


class Settle(Step, frozen=True):
    """A consumer acknowledges messages, or rejects them.

    Attributes:
        client: who.
        pick: which of the messages in flight, counted around.
        count: how many times.
        reject: whether it rejects.
        receipt: whether it asks for receipts.
    """

    client: str
    pick: int = 0
    count: int = 1
    reject: bool = False
    receipt: bool = False

    def act(self, world: QueueWorld) -> None:
        """Settle."""
        if client := world.clients.get(self.client):
            for _ in range(self.count):
                client.settle(self.pick, reject=self.reject, receipt=self.receipt)


AnyStep = Send | Subscribe | Settle | CommonStep
