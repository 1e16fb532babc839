"""The model: from what work costs to what a load needs, and which limit it meets first.

What it takes for granted is in ``ASSUMPTIONS``.

What the model says of a load on the machine of the measurement, where brokers, database and clients share cores.
"""

from collections.abc import Callable
from math import ceil, log, sqrt
from typing import NamedTuple

from benchmarks.scaling.costs import Costs, Work, trips

BUSY = 0.9
"""What share of a core, of a disk or of a network is used at the most."""

HEART_BEAT = 10.0
"""Seconds between two heart-beats to a client: what clients of JMS ask for unless they are told otherwise."""

CONNECTIONS = 10_000
"""How many clients a shard takes: ``stomp.max_connections`` and ``openwire.max_connections`` have this default."""

MESSAGES = 64 << 20
"""How many bytes of messages a shard keeps in memory: the default of ``memory.limit``."""

MOST_SHARDS = 2_000
"""With more shards no plan is made."""

HIGHEST = 1e8
"""No rate is looked for above this one, in messages a second."""

ASSUMPTIONS = (
    "A unit of work costs what it cost on the machine of the measurement, however many brokers there are.",
    f"A shard uses one core at the most. Cores, disks and networks are used up to {BUSY:.0%}.",
    "Destinations have equal shares of the messages. Unless they are pinned, hashing gives the busiest shard more "
    "destinations than the mean m: m + sqrt(2 m ln(shards)).",
    "A client may be connected to any shard: with n shards, 1 - 1/n of the messages are relayed.",
    "Each message is persistent, sent with a receipt, delivered from memory, and acknowledged by itself. A message for "
    "several consumers is stored once; each of them costs what the consumer of a queue does.",
    "Between two commits a client sends or takes at most once. A busy shard commits as seldom as the wait for a commit "
    "allows. One that is not busy commits at once, alone messages too: it uses more of its core than it needs.",
    "Bodies do not compress. With bodies that do, there is less log.",
    f"Each connection gets a heart-beat every {HEART_BEAT:g} s.",
)


class Demand(NamedTuple):
    rate: float  # messages a second that producers send
    size: float  # bytes of a body
    destinations: int  # over how many destinations they are spread
    fanout: int  # how many consumers get each message
    producers: int  # how many send at the same time
    consumers: int  # how many receive
    connections: int  # how many connections there are, with those of producers and consumers
    pinned: bool = False  # whether an operator has spread the destinations evenly over the shards
    wait: float = 0.02  # how long a message may wait for the commit before its own, in seconds


class Machines(NamedTuple):
    cores: int = 4  # of the machine of a broker
    memory: float = 16e9  # bytes of memory of that machine
    network: float = 1.25e9  # bytes a second of the network of each machine, in each direction
    database_cores: int = 8  # of the machine of a database
    log: float = 200e6  # bytes a second that a database can write to its log and sync
    database_connections: int = 100  # how many connections a database accepts


class Cluster(NamedTuple):
    shards: int
    brokers: int
    databases: int


class Limit(NamedTuple):
    name: str
    used: float  # how much of it the load needs
    there: float  # how much there is
    unit: str  # of both
    needs: str  # of what a cluster needs more: ``shards``, ``brokers`` or ``databases``

    @property
    def share(self) -> float:
        """The part of it that is used."""
        return self.used / self.there


def highest(fits: Callable[[float], bool]) -> float:
    """The highest rate that fits, up to ``HIGHEST``; every lower one fits too."""
    low, high = 0.0, HIGHEST
    for _ in range(60):
        rate = (low + high) / 2
        low, high = (rate, high) if fits(rate) else (low, rate)
    return low


class TooMuch(Exception):
    """No cluster of this kind carries the load; the limit is the one that stays."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        super().__init__(f"no number of {limit.needs} is enough: {limit.name}")


def busiest(destinations: int, shards: int, pinned: bool) -> float:
    """What share of the destinations the shard has that has most of them."""
    mean = destinations / shards
    most = ceil(mean) if pinned else mean + sqrt(2 * mean * log(shards))
    return min(1.0, max(1.0, most) / destinations)


def work_of_shard(demand: Demand, share: float, commits_of: Callable[[float], float]) -> Work:
    """What a shard does in a second if it has this share of the messages.

    Args:
        commits_of: how many commits a second it makes, by how many records a second they add and remove.
    """
    sent, taken = demand.rate * share, demand.rate * share * demand.fanout
    commits = commits_of(sent + taken)
    both = trips(sent, demand.producers * share, commits) + trips(taken, demand.consumers * share, commits)
    return Work(sent, taken, sent * demand.size, taken * demand.size, commits, both)


def needed(costs: Costs, demand: Demand, share: float) -> Work:
    """The same with no more commits than are needed."""

    def commits(records: float) -> float:
        return min(records, max(1 / demand.wait, records / costs.pace.most))

    return work_of_shard(demand, share, commits)


def seconds_of_shard(costs: Costs, demand: Demand, shards: int, share: float) -> float:
    """How many seconds of processor a second a shard takes that has this share of the messages."""
    work, idle = needed(costs, demand, share), costs.idle
    beats = demand.connections / shards / HEART_BEAT
    messages = costs.broker.cost(work) + (1 - 1 / shards) * costs.relay.cost(work)
    return messages + idle.shard_seconds + beats * idle.heart_beat_seconds


def limits(costs: Costs, demand: Demand, machines: Machines, cluster: Cluster) -> list[Limit]:
    """All limits of a cluster under a load; the one that is met first is the first."""
    mean = needed(costs, demand, 1 / cluster.shards)
    found = [
        *_limits_of_shards(costs, demand, cluster),
        *_limits_of_brokers(costs, demand, machines, cluster, mean),
        *_limits_of_databases(costs, machines, cluster, mean),
    ]
    return sorted(found, key=lambda limit: -limit.share)


def plan(costs: Costs, demand: Demand, machines: Machines) -> Cluster:
    """The smallest cluster that carries a load: as long as a limit is exceeded, it gets one more of what that needs."""
    cluster = Cluster(1, 1, 1)
    while (first := limits(costs, demand, machines, cluster)[0]).share > 1:
        more = cluster._replace(**{first.needs: getattr(cluster, first.needs) + 1})
        cluster = more._replace(shards=max(more))
        if cluster.shards > MOST_SHARDS:
            raise TooMuch(first)
    for needs in ("brokers", "databases"):  # that came before there were enough shards to use them well
        while getattr(cluster, needs) > 1:
            fewer = cluster._replace(**{needs: getattr(cluster, needs) - 1})
            if limits(costs, demand, machines, fewer)[0].share > 1:
                break
            cluster = fewer
    return cluster


def highest_rate(costs: Costs, demand: Demand, machines: Machines, cluster: Cluster, name: str = "") -> float:
    def fits(rate: float) -> bool:
        found = limits(costs, demand._replace(rate=rate), machines, cluster)
        return all([limit.share <= 1 for limit in found if name in ("", limit.name)])

    return highest(fits)


def _limits_of_shards(costs: Costs, demand: Demand, cluster: Cluster) -> list[Limit]:
    """Of the shard that has most destinations; of connections all have the same."""
    share = busiest(demand.destinations, cluster.shards, demand.pinned)
    seconds = seconds_of_shard(costs, demand, cluster.shards, share)
    work, pace = needed(costs, demand, share), costs.pace
    commits = work.commits * pace.commit + (work.sent + work.taken) * pace.record
    return [
        Limit("the core of the busiest shard", seconds, BUSY, "cores", "shards"),
        Limit("the commits of the busiest shard", commits, 1.0, "of its time", "shards"),
        Limit("the connections of a shard", demand.connections / cluster.shards, CONNECTIONS, "connections", "shards"),
    ]


def _limits_of_brokers(costs: Costs, demand: Demand, machines: Machines, cluster: Cluster, mean: Work) -> list[Limit]:
    """Of the broker that has most shards."""
    shards = ceil(cluster.shards / cluster.brokers)
    here, idle = shards / cluster.shards, costs.idle
    seconds = shards * seconds_of_shard(costs, demand, cluster.shards, 1 / cluster.shards)
    subscriptions = max(demand.consumers, demand.destinations * demand.fanout)
    memory = (
        shards * (idle.shard_memory + MESSAGES)
        + here * demand.connections * idle.connection_memory
        + here * demand.destinations * idle.destination_memory
        + here * subscriptions * idle.subscription_memory
    )
    relayed = 0.0 if cluster.shards == shards else shards * costs.link.cost(mean) * (1 - here)
    sent, taken = mean._replace(taken=0, taken_bytes=0), mean._replace(sent=0, sent_bytes=0)
    arriving = shards * costs.wire.cost(sent) + relayed
    leaving = shards * (costs.wire.cost(taken) + mean.sent_bytes) + relayed
    return [
        Limit("the cores of a broker", seconds, BUSY * machines.cores, "cores", "brokers"),
        Limit("the memory of a broker", memory, machines.memory, "bytes", "brokers"),
        Limit("the network of a broker", max(arriving, leaving), BUSY * machines.network, "bytes/s", "brokers"),
    ]


def _limits_of_databases(costs: Costs, machines: Machines, cluster: Cluster, mean: Work) -> list[Limit]:
    """Of the database that has most shards."""
    shards, idle = ceil(cluster.shards / cluster.databases), costs.idle
    seconds = shards * (costs.database.cost(mean) + idle.database_seconds)
    log_bytes = shards * costs.log.cost(mean)
    network = max(shards * mean.sent_bytes, log_bytes)  # what brokers write; what a standby gets
    connections = shards * idle.database_connections
    return [
        Limit("the cores of a database", seconds, BUSY * machines.database_cores, "cores", "databases"),
        Limit("the log of a database", log_bytes, BUSY * machines.log, "bytes/s", "databases"),
        Limit("the network of a database", network, BUSY * machines.network, "bytes/s", "databases"),
        Limit("the connections of a database", connections, machines.database_connections, "connections", "databases"),
    ]


class Setup(NamedTuple):
    name: str  # what it is called
    demand: Demand  # the load; as many messages as possible if its rate is 0. The connections do not count here.
    window: int  # how many unconfirmed messages a producer may have
    shards: int  # how many shards there are
    relayed: float  # the share of the messages whose clients are connected to another shard
    cores: int  # how many cores everything shares


class Forecast(NamedTuple):
    rate: float
    broker: float
    database: float
    client: float
    log: float


def forecast(costs: Costs, setup: Setup) -> Forecast:
    """What a load takes at its rate, or at the highest rate for which there are cores.

    At its rate each shard commits as often as it can. At the highest rate the producers wait for it: half of what they
    may have unconfirmed is in a commit with as many removals, while the other half is on its way.
    """
    if setup.demand.rate:
        return _at(costs, setup, setup.demand.rate, costs.pace.commits)
    records = setup.window * setup.demand.producers / setup.shards

    def full(rate: float) -> Forecast:
        return _at(costs, setup, rate, lambda each: each / records)

    def fits(rate: float) -> bool:
        found = full(rate)
        everything = rate * (found.broker + found.database + found.client)
        return everything <= BUSY * setup.cores and rate * found.broker <= BUSY * setup.shards

    return full(highest(fits))


def _at(costs: Costs, setup: Setup, rate: float, commits_of: Callable[[float], float]) -> Forecast:
    work = work_of_shard(setup.demand._replace(rate=rate), 1 / setup.shards, commits_of)
    one = work.times(setup.shards / rate)
    broker = costs.broker.cost(one) + setup.relayed * costs.relay.cost(one)
    return Forecast(rate, broker, costs.database.cost(one), costs.client.cost(one), costs.log.cost(one))
