"""What transactions need of the broker."""

from typing import NamedTuple

from quire.broker.core.core import Core
from quire.broker.destinations import Destinations
from quire.broker.producer_ids import ProducerIds
from quire.broker.routing.routing import Routing
from quire.broker.topics.durables import Durables
from quire.broker.transactions.transaction_timeouts import TransactionTimeouts
from quire.errors import LimitExceeded

MAX_TRANSACTIONS = 1000
"""How many local transactions, and how many XA branches that are not prepared, a connection may have open."""


class TransactionServices(NamedTuple):
    """The services."""

    core: Core
    destinations: Destinations
    durables: Durables
    routing: Routing
    producers: ProducerIds
    timeouts: TransactionTimeouts


def check_room(open: int) -> None:
    """See that a connection may open another transaction.

    Args:
        open: how many it has open.

    Raises:
        LimitExceeded: it may not.
    """
    if open >= MAX_TRANSACTIONS:
        raise LimitExceeded(f"{MAX_TRANSACTIONS} transactions are open, which is the limit", limit=MAX_TRANSACTIONS)
