"""What a history of streams begins with: the broker's limits and its groups."""

from typing import Literal

from msgspec import Struct

from quire.broker.streams.groups.group_definition import Order
from quire.settings import Settings
from tests.simulation.history import Setup
from tests.unit.broker.harness import settings


class GroupSetup(Struct, frozen=True, omit_defaults=True):
    """A group that clients may join.

    Attributes:
        name: its name; empty for a reader.
        order: what order it relies on.
        color: which messages it wants; empty for all.
        start: where it begins.
    """

    name: str = "g"
    order: Order = Order.CONCURRENT
    color: str = ""
    start: Literal["earliest", "latest"] = "earliest"


class StreamSetup(Setup, frozen=True, tag_field="world", tag="streams"):
    """What a history begins with.

    Attributes:
        memory_limit: bytes that everything together keeps in memory.
        store_limit: bytes of messages in the store before producers are held.
        partitions: how many the stream has at first.
        retention_time: how many seconds it keeps a message; -1 for ever.
        retention_bytes: how many bytes it keeps; 0 for no limit.
        retention_groups_done: whether it lets go what all groups have finished.
        max_in_flight: how many messages of a partition a group has in hands.
        max_in_flight_bytes: how many bytes of a partition it keeps in memory.
        consume_timeout: how long a member has a message that asks for no time, in seconds.
        retry: where a message waits that failed.
        retry_maximum: how often it is tried again.
        retry_delays: how long it waits, in seconds, retry by retry.
        strategy: how partitions are dealt out.
        grace: how long a member with a name is awaited, in seconds.
        revoke_timeout: how long a member may finish with a partition that goes to another one, in seconds.
        groups: the groups.
    """

    memory_limit: int = 10**6
    store_limit: int = 10**9
    partitions: int = 2
    retention_time: float = -1.0
    retention_bytes: int = 0
    retention_groups_done: bool = False
    max_in_flight: int = 2000
    max_in_flight_bytes: int = 10**6
    consume_timeout: float = 30.0
    retry: Literal["relocated", "in-place"] = "relocated"
    retry_maximum: int = 16
    retry_delays: tuple[float, ...] = (1.0, 2.0)
    strategy: Literal["averagely", "averagely-by-circle", "consistent-hash", "sticky", "shared"] = "averagely"
    grace: float = 5.0
    revoke_timeout: float = 2.0
    groups: tuple[GroupSetup, ...] = (GroupSetup(),)

    def group(self, name: str) -> GroupSetup | None:
        """What the group of a name is, if there may be one."""
        return next((group for group in self.groups if group.name == name), None)

    def settings(self) -> Settings:
        """The settings of the broker."""
        return settings(
            memory={"limit": self.memory_limit},
            store={"limit": self.store_limit},
            producer={"hold_limit": 5.0},
            broker={"expiry_interval": 1.0},
            policy={
                "partitions": self.partitions,
                "retention_time": self.retention_time,
                "retention_bytes": self.retention_bytes,
                "retention_groups_done": self.retention_groups_done,
                "max_in_flight": self.max_in_flight,
                "max_in_flight_bytes": self.max_in_flight_bytes,
                "consume_timeout": self.consume_timeout,
                "retry": self.retry,
                "retry_maximum": self.retry_maximum,
                "retry_delays": " ".join([f"{delay:g}s" for delay in self.retry_delays]),
                "rebalance_strategy": self.strategy,
                "member_grace": self.grace,
                "revoke_timeout": self.revoke_timeout,
            },
        )
