"""What tests of XA transactions share."""

from typing import Any

from quire.broker.core.subscription import Session
from quire.broker.transactions.decisions import Xid
from quire.broker.transactions.transaction import HeldSend
from quire.broker.transactions.xa import XaBranch
from quire.message import header_lines
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import filled
from tests.unit.broker.recipients import Recipient, acknowledge


def xid(branch: bytes) -> Xid:
    """The name of a branch of the transaction that these tests are about."""
    return Xid(55, b"transaction", branch)


XID = xid(b"1")


def start(stepped: SteppedBroker, session: Session | None = None, *, branch: bytes = b"1") -> XaBranch:
    return stepped.broker.xa.start(xid(branch), session or Recipient(stepped))


def send_in(stepped: SteppedBroker, branch: XaBranch, destination: str, body: bytes, **how: Any) -> None:
    """Send a message in a branch; ``how`` has fields of ``HeldSend``."""
    content = header_lines({"message-id": f"ID:{body.decode()}", "timestamp": "1"}) + b"\n" + body
    usual = {"expiration": 0, "priority": 4, "persistent": True}
    branch.transaction.send(stepped.broker.target(destination), HeldSend(destination, content, **{**usual, **how}))


def depths(stepped: SteppedBroker) -> dict[str, int]:
    return {name: queue.depth for name, queue in stepped.broker.queues.items() if queue.depth}


def acknowledged(count: int, **changes: Any) -> tuple[SteppedBroker, CoreConsumer, XaBranch]:
    """A queue whose first messages a branch has acknowledged, and which has one more message."""
    stepped = filled(count + 1, **changes)
    receiver = CoreConsumer(stepped, prefetch=count)
    branch = start(stepped, receiver.session)
    acknowledge(receiver.subscription, *range(1, count + 1), transaction=branch.transaction)
    return stepped, receiver, branch
