"""What is dispatched as a queue hands in what is its own: it changes nothing that dispatch does."""

import inspect

import pytest

from quire.broker.queues.queue import Queue
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group import GroupPartition
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.topics.topic import DurableSubscription


def methods_of(kind: type) -> set[str]:
    """The methods and properties that a class defines itself."""
    return {name for name, value in vars(kind).items() if inspect.isroutine(value) or isinstance(value, property)}


@pytest.mark.parametrize("kind", [Queue, LaneSubscription, DurableSubscription, GroupPartition, RetryQueue])
def test_no_kind_of_queue_overrides_a_method(kind: type) -> None:
    inherited = {name for base in kind.__mro__[1:-1] for name in methods_of(base)}
    assert inherited > {"dispatch", "acknowledge", "redeliver", "committed", "room"}
    assert methods_of(kind) & inherited == {"__init__"}
