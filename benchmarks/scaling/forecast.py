"""What the model says of a load on the machine of the measurement, where brokers, database and clients share cores."""

from typing import NamedTuple

from benchmarks.scaling.capacity import BUSY, Demand, highest, work_of_shard
from benchmarks.scaling.costs import Costs


class Setup(NamedTuple):
    """A load that is the same for each of some shards.

    Attributes:
        name: what it is called.
        demand: the load; as many messages as possible if its rate is 0. The connections do not count here.
        shards: how many shards there are.
        relayed: the share of the messages whose clients are connected to another shard.
        cores: how many cores everything shares.
    """

    name: str
    demand: Demand
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
    """What a load takes at its rate, or at the highest rate for which there are cores."""
    if setup.demand.rate:
        return _at(costs, setup, setup.demand.rate)

    def fits(rate: float) -> bool:
        found = _at(costs, setup, rate)
        everything = rate * (found.broker + found.database + found.client)
        return everything <= BUSY * setup.cores and rate * found.broker <= BUSY * setup.shards

    return _at(costs, setup, highest(fits))


def _at(costs: Costs, setup: Setup, rate: float) -> Forecast:
    work = work_of_shard(costs, setup.demand._replace(rate=rate), 1 / setup.shards)
    one = work.times(setup.shards / rate)
    broker = costs.broker.cost(one) + setup.relayed * costs.relay.cost(one)
    return Forecast(rate, broker, costs.database.cost(one), costs.client.cost(one), costs.log.cost(one))
