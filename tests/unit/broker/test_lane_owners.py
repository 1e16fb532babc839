"""What is dispatched as a queue says what is its own in some few methods, and changes nothing else of dispatch."""

import inspect

import pytest

from quire.broker.queues.queue import LaneDispatch, Queue
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group import GroupPartition
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.topics.topic import DurableSubscription

OWN = {
    "_consumer_came_or_left", "_damage", "_letter", "_may_have", "_new_groups", "_refuse", "_relocate", "_undo",
    "_write", "_written",
}  # fmt: skip
"""What a kind says for itself."""

BEFORE = {RetryQueue: {"dispatch", "fill"}, GroupPartition: {"hide"}}
"""A retry is removed before dispatch comes to it, or a commit; what is in flight elsewhere is hidden from nobody."""


def methods_of(kind: type) -> set[str]:
    """The methods and properties that a class defines itself."""
    return {name for name, value in vars(kind).items() if inspect.isroutine(value) or isinstance(value, property)}


@pytest.mark.parametrize("kind", [Queue, LaneSubscription, DurableSubscription, GroupPartition, RetryQueue])
def test_a_kind_of_queue_overrides_what_is_its_own_and_nothing_else(kind: type) -> None:
    inherited = {name for base in kind.__mro__[1:-1] for name in methods_of(base)}
    assert methods_of(LaneDispatch) > {"dispatch", "acknowledge", "redeliver", "committed", "room", *OWN}
    assert (methods_of(kind) & inherited) - {"__init__"} <= OWN | BEFORE.get(kind, set())
