"""What the model says of a load on the machine of the measurement, where brokers, database and clients share cores."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.scaling.capacity import BUSY, Demand, highest, work_of_shard
from benchmarks.scaling.costs import Costs


class Setup(NamedTuple):
    """A load that is the same for each of some shards.

    Attributes:
        name: what it is called.
        demand: the load; as many messages as possible if its rate is 0. The connections do not count here.
        window: how many unconfirmed messages a producer may have.
        shards: how many shards there are.
        relayed: the share of the messages whose clients are connected to another shard.
        cores: how many cores everything shares.
    """

    name: str
    demand: Demand
    window: int
    shards: int
    relayed: float
    cores: int


class Forecast(NamedTuple):
    """What is expected: messages a second; for a message, seconds of processor and bytes of log."""

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
