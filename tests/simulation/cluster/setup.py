"""What a history of a cluster begins with."""

from quire.settings import Settings
from tests.simulation.history import Setup
from tests.unit.broker.harness import settings

QUEUES = ("s.d", "s.g", "s.a", "s.b")
"""The queues that clients send to. Of two shards each has two of them; of three the first has two."""

ALL_QUEUES = "s.>"
"""What a consumer of all of them subscribes to: it is subscribed at every shard."""

TOPIC = "/topic/s.t"
"""The topic that clients send to."""

DURABLE = "d0"
"""The client that has a durable subscription to the topic. Its name is its client id, so one connection has it."""

ATTEMPTS = 1000
"""So often a message may fail: dead letters are for the world of queues."""


class ClusterSetup(Setup, frozen=True, tag_field="world", tag="cluster"):
    """What a history begins with.

    Attributes:
        shards: how many shards there are, 2 or 3.
        gathers: whether what a client sends is read in the next turn of its process, all at once.
        packet: how many bytes of a link come at once at the most.
        memory_limit: bytes that all queues of a shard together keep in memory.
        store_limit: bytes of messages in the store of a shard before producers are held.
        numbered: the producers that number their sends.
    """

    shards: int = 2
    gathers: bool = False
    packet: int = 1 << 16
    memory_limit: int = 10**6
    store_limit: int = 10**9
    numbered: tuple[str, ...] = ()

    def settings(self) -> Settings:
        """The settings of each process."""
        return settings(
            memory={"limit": self.memory_limit},
            store={"limit": self.store_limit},
            producer={"hold_limit": 5.0},
            policy={"maximum_redeliveries": ATTEMPTS},
        )


def header_of(destination: str) -> str:
    """A destination as a header says it."""
    return destination if destination.startswith("/") else f"/queue/{destination}"
