"""What transactions need of the broker."""

from typing import NamedTuple

from quire.broker.core.core import Core
from quire.broker.destinations import Destinations
from quire.broker.producer_ids import ProducerIds
from quire.broker.routing.routing import Routing
from quire.broker.topics.durables import Durables
from quire.broker.transactions.transaction_timeouts import TransactionTimeouts


class TransactionServices(NamedTuple):
    """The services."""

    core: Core
    destinations: Destinations
    durables: Durables
    routing: Routing
    producers: ProducerIds
    timeouts: TransactionTimeouts
