"""What work costs, as it was measured and fitted: the input of the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

FILE = Path(__file__).with_name("measured.json")


class Work(NamedTuple):
    """An amount of work; also what each unit of it costs."""

    sent: float = 0.0  # messages that a producer has sent, each with a receipt, and that are stored
    taken: float = 0.0  # messages that a consumer has received and acknowledged
    sent_bytes: float = 0.0  # the bytes of the bodies that were sent
    taken_bytes: float = 0.0  # the bytes of the bodies that were taken
    commits: float = 0.0  # commits of the store
    trips: float = 0.0  # how often the broker hears of one client and answers it. One trip may bring many messages.

    def cost(self, amount: "Work") -> float:
        return sum([cost * units for cost, units in zip(self, amount, strict=True)])

    def times(self, factor: float) -> "Work":
        return Work(*[part * factor for part in self])


def trips(messages: float, clients: float, commits: float) -> float:
    """How many trips messages take: each client sends, or takes, once for each commit, or once for each message."""
    return min(messages, clients * commits)


class Pace(NamedTuple):
    """How long commits of one shard take. They are made one after the other."""

    commit: float  # seconds of a commit, without its records
    record: float  # more seconds for each record that it adds or removes
    most: float  # the most records that a commit had

    def commits(self, records: float) -> float:
        """How many commits a second a shard makes that stores and removes so many records a second."""
        if records == 0:
            return 0.0
        fastest = (1 - self.record * records) / self.commit  # the next one begins when the last one ends
        return min(records, max(fastest, records / self.most))


class Idle(NamedTuple):
    shard_seconds: float  # seconds of processor a second, of the broker, for each shard
    database_seconds: float  # the same of the database
    heart_beat_seconds: float  # seconds of processor of a heart-beat to one client
    database_connections: float  # connections of each shard to the database
    shard_memory: float  # bytes of a shard's process
    connection_memory: float  # more bytes for each connection
    destination_memory: float  # more bytes for each queue
    subscription_memory: float  # more bytes for each subscription


class Disk(NamedTuple):
    """What the disk of the database does: bytes a second in large synced writes, and small synced writes a second."""

    bytes_per_s: float
    syncs_per_s: float


class Check(NamedTuple):
    """A load that no cost was derived from: for each figure what the model says, and what was measured."""

    load: str  # what it is
    cores: int  # how many cores brokers, database and clients share
    wanted: float  # the rate that it had; 0 for as many messages as possible
    rate: tuple[float, float]  # messages a second
    broker: tuple[float, float]  # seconds of processor of the brokers for a message
    database: tuple[float, float]  # the same of the database
    log: tuple[float, float]  # bytes of its log for a message


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured.

    Attributes:
        fit: of each of the following, how far measurements are from what it makes of them, at the most, as a share.
    """

    measured: str  # the date
    machine: str  # on what
    versions: str
    fit: dict[str, float]
    broker: Work  # seconds of processor of the shard that has the destination
    relay: Work  # more seconds of processor, of entry and owner together, if the client is connected to another shard
    database: Work  # seconds of processor of the database
    log: Work  # bytes of the write-ahead log of the database
    client: Work  # seconds of processor of the programs that make the load
    wire: Work  # bytes between clients and brokers, with the headers of all layers
    link: Work  # more bytes between brokers for relayed messages
    acknowledge: float  # seconds of processor of the broker for an ACK of a single message, if many come at once
    pace: Pace  # of commits
    idle: Idle  # what there is without messages
    disk: Disk  # of this machine
    checks: list[Check]  # how good the model is


def read() -> Costs:
    return msgspec.json.decode(FILE.read_bytes(), type=Costs)


def write(costs: Costs) -> None:
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=1) + b"\n")


class Fit(NamedTuple):
    costs: Work  # of one unit of each kind of work
    error: float  # how far measurements are from what the costs make of them, at the most, as a share


def fit(
    amounts: Sequence[Work], totals: Sequence[float], kinds: Sequence[str], known: Sequence[float] | None = None
) -> Fit:
    """What one unit of each kind of work costs, so that the costs come as close as possible to the measured totals.

    Every measurement counts alike, however large it is: what is minimized is the sum of the squares of the relative
    errors. No cost is negative: a kind that would be is left out.

    Args:
        amounts: the work of each measurement.
        totals: what each of them took.
        kinds: the fields of ``Work`` that may cost anything.
        known: the parts of the totals whose cause is known, and is no cost of these.
    """
    rest = 1 - np.array(known or [0.0] * len(totals)) / totals
    left = list(kinds)
    found = Work()
    while left:
        shares = np.array([[getattr(amount, kind) for kind in left] for amount in amounts]) / np.array(totals)[:, None]
        units = np.linalg.norm(shares, axis=0)  # messages and bytes are of very different sizes
        costs = np.linalg.lstsq(shares / units, rest, rcond=None)[0]
        if costs.min() >= 0:
            found = Work(**dict(zip(left, map(float, costs / units), strict=True)))
            break
        left.pop(int(costs.argmin()))
    errors = [found.cost(amount) / total - part for amount, total, part in zip(amounts, totals, rest, strict=True)]
    return Fit(found, float(max(map(abs, errors))))
