"""What a history of queues begins with: the broker's limits."""

from typing import Literal

from quire.settings import Settings
from tests.simulation.history import Setup
from tests.unit.broker.harness import settings

QUEUES = ("a", "b")
"""The queues that clients send to."""


class QueueSetup(Setup, frozen=True):
    """What a history begins with.

    Attributes:
        memory_limit: bytes that all queues together keep in memory.
        queue_limit: bytes that one queue keeps in memory; 0 for no limit of its own.
        store_limit: bytes of messages in the store before producers are held.
        spool_limit: bytes of messages in the spool before producers are held.
        maximum_redeliveries: how often a message may fail and be delivered again.
        redelivery_delay: how many seconds a rejected message waits.
        redelivery_at: where it comes back.
        blocking_redelivery: whether it holds back later messages meanwhile.
        strict_order_dispatch: whether one consumer is filled before the next one.
        individual_dead_letters: whether each queue has its own dead letter queue.
        prioritized: the queues that deliver messages of higher priority first.
        numbered: the producers that number their sends.
    """

    memory_limit: int = 10**6
    queue_limit: int = 0
    store_limit: int = 10**9
    spool_limit: int = 10**9
    maximum_redeliveries: int = 6
    redelivery_delay: float = 0
    redelivery_at: Literal["in-place", "tail"] = "in-place"
    blocking_redelivery: bool = False
    strict_order_dispatch: bool = False
    individual_dead_letters: bool = False
    prioritized: tuple[str, ...] = ()
    numbered: tuple[str, ...] = ()

    def dead_letters(self, queue: str) -> str:
        """Where the dead letters of a queue go."""
        return f"ActiveMQ.DLQ.Queue.{queue}" if self.individual_dead_letters else "ActiveMQ.DLQ"

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues there may be."""
        return (*QUEUES, *dict.fromkeys([self.dead_letters(queue) for queue in QUEUES]))

    def settings(self) -> Settings:
        """The settings of the broker."""
        return settings(
            memory={"limit": self.memory_limit},
            store={"limit": self.store_limit},
            spool={"limit": self.spool_limit},
            producer={"hold_limit": 5.0},
            broker={"expiry_interval": 1.0},
            policy={
                "memory_limit": self.queue_limit,
                "maximum_redeliveries": self.maximum_redeliveries,
                "initial_redelivery_delay": self.redelivery_delay,
                "redelivery_delay": self.redelivery_delay,
                "redelivery_at": self.redelivery_at,
                "blocking_redelivery": self.blocking_redelivery,
                "strict_order_dispatch": self.strict_order_dispatch,
                "dead_letter_strategy": "individual" if self.individual_dead_letters else "shared",
            },
            policies=[{"destination": name, "prioritized_messages": True} for name in self.prioritized],
        )
