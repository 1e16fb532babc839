"""What the tests of management share: its steps done to the end, and a queue with messages of every kind."""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from quire.broker.broker import Broker
from quire.destination import DestinationKind
from quire.management.messages import STEP, BrowsePage, Choice, Draft
from quire.management.messages import browse as browse_page
from quire.management.queues import Management
from quire.message import MESSAGE_OVERHEAD
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings

KINDS = st.lists(st.sampled_from(["stored", "kept", "spooled"]), max_size=12)
"""Where the messages of a queue are, in their order."""


def total(stepped: SteppedBroker, steps: Iterable[int]) -> int:
    """Do all steps, each with its commit."""
    done = 0
    for count in steps:
        assert count <= STEP
        stepped.run()
        done += count
    return done


def only(*ids: str, **choice: Any) -> Choice:
    """A choice of messages."""
    return Choice(ids=ids, **choice)


def browse(
    broker: Broker, name: str, after: str | None = None, limit: int = 100, wanted: str | None = None
) -> BrowsePage:
    """A page of a queue."""
    return browse_page(broker.core, broker.destinations.existing_queue(name), after, limit, wanted)


def browsed(stepped: SteppedBroker, name: str = "q", page: int = 7) -> list[bytes]:
    """The bodies in a queue, as a browse sees them, page by page."""
    after, found = None, []
    while True:
        answer = browse(stepped.broker, name, after, page)
        assert len(answer.messages) <= page
        found += [message.body.encode() for message in answer.messages]
        after = answer.next
        if after is None:
            return found


def send(
    stepped: SteppedBroker, body: bytes, name: str = "q", headers: dict[str, str] | None = None,
    kind: DestinationKind = DestinationKind.QUEUE, **draft: Any,
) -> str:  # fmt: skip
    """Send a message and let it be committed."""
    (ids,) = Management(stepped.broker).send(name, Draft(body, headers or {}, **draft), kind=kind)
    stepped.run()
    return ids[0]


def mixed(kinds: list[str]) -> SteppedBroker:
    """A queue whose messages are in the store, in memory and in the spool."""
    stepped = SteppedBroker(settings(memory={"limit": 100 * MESSAGE_OVERHEAD}))
    limit = stepped.broker.core.memory.limit
    for number, kind in enumerate(kinds):
        stepped.broker.core.memory.limit = 1 if kind == "spooled" else limit
        send(stepped, b"%d" % number, persistent=kind == "stored")
    stepped.broker.core.memory.limit = limit
    stepped.queue("q")
    return stepped
