"""What work costs, as it was measured: the input of the model."""

from pathlib import Path
from typing import NamedTuple

import msgspec

FILE = Path(__file__).with_name("measured.json")


class Work(NamedTuple):
    """An amount of work; also what each unit of it costs.

    Attributes:
        sent: messages that a producer has sent, each with a receipt, and that are stored.
        taken: messages that a consumer has received and acknowledged.
        sent_bytes: the bytes of the bodies that were sent.
        taken_bytes: the bytes of the bodies that were taken.
        commits: commits of the store.
        trips: how often the broker hears of one client and answers it. One trip may bring many messages.
    """

    sent: float = 0.0
    taken: float = 0.0
    sent_bytes: float = 0.0
    taken_bytes: float = 0.0
    commits: float = 0.0
    trips: float = 0.0

    def cost(self, amount: "Work") -> float:
        """What an amount of work costs, if this is what each unit does."""
        return sum([cost * units for cost, units in zip(self, amount, strict=True)])

    def times(self, factor: float) -> "Work":
        """So many times this work."""
        return Work(*[part * factor for part in self])


def trips(messages: float, clients: float, commits: float) -> float:
    """How many trips messages take: each client sends, or takes, once for each commit, or once for each message."""
    return min(messages, clients * commits)


class Pace(NamedTuple):
    """How long commits of one shard take. They are made one after the other.

    Attributes:
        commit: seconds of a commit, without its records.
        record: more seconds for each record that it adds or removes.
        most: the most records that a commit had.
    """

    commit: float
    record: float
    most: float

    def commits(self, records: float) -> float:
        """How many commits a second a shard makes that stores and removes so many records a second."""
        if records == 0:
            return 0.0
        fastest = (1 - self.record * records) / self.commit  # the next one begins when the last one ends
        return min(records, max(fastest, records / self.most))


class Idle(NamedTuple):
    """What there is without messages.

    Attributes:
        shard_seconds: seconds of processor a second, of the broker, for each shard.
        database_seconds: the same of the database.
        heart_beat_seconds: seconds of processor of a heart-beat to one client.
        database_connections: connections of each shard to the database.
        shard_memory: bytes of a shard's process.
        connection_memory: more bytes for each connection.
        destination_memory: more bytes for each queue.
        subscription_memory: more bytes for each subscription.
    """

    shard_seconds: float
    database_seconds: float
    heart_beat_seconds: float
    database_connections: float
    shard_memory: float
    connection_memory: float
    destination_memory: float
    subscription_memory: float


class Disk(NamedTuple):
    """What the disk of the database does: bytes a second in large synced writes, and small synced writes a second."""

    bytes_per_s: float
    syncs_per_s: float


class Check(NamedTuple):
    """A load that no cost was derived from: for each figure what the model says, and what was measured.

    Attributes:
        load: what it is.
        cores: how many cores brokers, database and clients share.
        wanted: the rate that it had; 0 for as many messages as possible.
        rate: messages a second.
        broker: seconds of processor of the brokers for a message.
        database: the same of the database.
        log: bytes of its log for a message.
    """

    load: str
    cores: int
    wanted: float
    rate: tuple[float, float]
    broker: tuple[float, float]
    database: tuple[float, float]
    log: tuple[float, float]


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured.

    Attributes:
        measured: the date.
        machine: on what.
        versions: of what.
        fit: of each of the following, how far measurements are from what it makes of them, at the most, as a share.
        broker: seconds of processor of the shard that has the destination.
        relay: more seconds of processor, of entry and owner together, if the client is connected to another shard.
        database: seconds of processor of the database.
        log: bytes of the write-ahead log of the database.
        client: seconds of processor of the programs that make the load.
        wire: bytes between clients and brokers, with the headers of all layers.
        link: more bytes between brokers for relayed messages.
        acknowledge: seconds of processor of the broker for an ACK of a single message, if many come at once.
        pace: of commits.
        idle: what there is without messages.
        disk: of this machine.
        checks: how good the model is.
    """

    measured: str
    machine: str
    versions: str
    fit: dict[str, float]
    broker: Work
    relay: Work
    database: Work
    log: Work
    client: Work
    wire: Work
    link: Work
    acknowledge: float
    pace: Pace
    idle: Idle
    disk: Disk
    checks: list[Check]


def read() -> Costs:
    """Read what was measured."""
    return msgspec.json.decode(FILE.read_bytes(), type=Costs)


def write(costs: Costs) -> None:
    """Write what was measured."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=1) + b"\n")
