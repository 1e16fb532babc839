"""What an operator sees of message groups, and how one is taken from its consumer."""

import pytest

from quire.errors import UnknownGroup
from quire.management.queues import Management
from quire.resources import GroupStatus
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer
from tests.unit.management.managed import send


def grouped(*names: str) -> SteppedBroker:
    """A queue with a message of each of these groups."""
    stepped = SteppedBroker()
    for number, name in enumerate(names):
        send(stepped, b"%d" % number, headers={"JMSXGroupID": name})
    return stepped


def test_nobody_has_a_group_of_a_queue_that_nobody_consumes() -> None:
    stepped = grouped("a")
    assert Management(stepped.broker).groups("q").groups == []
    with pytest.raises(UnknownGroup):
        Management(stepped.broker).close_group("q", "a")


def test_closed_group_goes_to_whoever_is_free_with_what_waits_for_it() -> None:
    stepped = grouped("a", "a")
    first, second = consumer(stepped, prefetchSize="1"), consumer(stepped)
    management = Management(stepped.broker)
    assert (first.messages(), second.messages()) == ([b"0"], [])
    management.close_group("q", "a")
    stepped.run()
    (frame,) = second.take("MESSAGE")
    assert (frame.body, frame.headers["JMSXGroupFirstForConsumer"]) == (b"1", "true")
    assert management.groups("q").groups == [GroupStatus("a", "client-2", "0", 1, 0, False)]


def test_what_the_former_consumer_settles_does_not_count_for_the_group_s_new_one() -> None:
    stepped = grouped("a", "a")
    first, second = consumer(stepped, prefetchSize="1"), consumer(stepped)
    (held,) = first.take("MESSAGE")
    management = Management(stepped.broker)
    management.close_group("q", "a")
    stepped.run()
    first.ack(held)
    stepped.run()
    assert [group.in_flight for group in management.groups("q").groups] == [1]
    second.ack(second.take("MESSAGE")[0])
    stepped.run()
    assert [group.in_flight for group in management.groups("q").groups] == [0]
