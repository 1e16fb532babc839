"""The broker's steps, so small that a short history crosses them: dispatch marks, pages, slices, output, sweeps."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

HOLES = 5
"""With so many holes in its ack set, a group is given nothing new."""

STEPS = {
    "quire.testing.stepped.MAX_STEPS": 1000,
    "quire.broker.queues.lane.STEP": 8,
    "quire.broker.queues.dispatch.SLICE": 2,
    "quire.broker.queues.dispatch.SCAN_LIMIT": 6,
    "quire.broker.queues.dispatch.RUN": 4,
    "quire.broker.queues.dispatch.RECALL_LIMIT": 2,
    "quire.broker.queues.lane.RECALL_LIMIT": 2,
    "quire.cursors.queue_cursor.PAGE_LIMIT": 3,
    "quire.cursors.queue_cursor.WINDOW_LIMIT": 12,
    "quire.server.stomp.stomp_door.OUTPUT_LIMIT": 2000,
    "quire.broker.queues.shared_lane.HOLES_LIMIT": HOLES,
    "quire.broker.queues.shared_lane.SCAN_LIMIT": 4,
    "quire.broker.queues.shared_lane.EARLY_HOLES": 3,
    "quire.broker.streams.groups.retries.STEP": 2,
    "quire.broker.streams.groups.retries.LINKS_AT_ONCE": 3,
    "quire.broker.streams.groups.groups.STEP": 3,
    "quire.broker.streams.retention.STEP": 3,
    "quire.cursors.ack_set.PAGE_RANGES": 3,
    "quire.cluster.virtual_connection.WINDOW": 3000,
    "quire.cluster.virtual_connection.CREDIT_STEP": 700,
    "quire.cluster.virtual_connection.FULL": 2000,
    "quire.cluster.virtual_connection.DRAINED": 500,
    "quire.cluster.virtual_connection.MAX_PAYLOAD": 1000,
    "quire.cluster.link.ENDED_AT_ONCE": 1,
    "quire.cluster.link.OUTPUT": 2000,
}


@contextmanager
def small_steps() -> Iterator[None]:
    """Make them so small."""
    with ExitStack() as stack:
        for name, size in STEPS.items():
            stack.enter_context(patch(name, size))
        yield
