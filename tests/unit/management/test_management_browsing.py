"""Browsing: pages of what is stored, kept and spooled, while cursor and memory are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidArgument, StoreCorrupt
from quire.management.messages import Draft
from quire.management.queues import Management
from quire.message import MESSAGE_OVERHEAD
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import DamagedStore, consumer, filled, numbers
from tests.unit.management.managed import KINDS, browse, browsed, mixed, send, total


def test_browse_says_of_each_message_what_there_is() -> None:
    stepped = SteppedBroker()
    draft = Draft(b"\xff", {"colour": "a:b"}, 7, stepped.clock.now_ms() + 60_000)
    ((id,),) = Management(stepped.broker).send("q", draft)
    stepped.run()
    consumer(stepped)
    (message,) = browse(stepped.broker, "q").messages
    assert (message.id, message.sequence, message.priority, message.in_flight) == (id, 1, 7, True)
    assert (message.body, message.body_encoding) == ("/w==", "base64")
    assert (message.timestamp, message.expiration) == (stepped.clock.now_ms(), draft.expiration)
    assert message.headers["colour"] == "a:b"
    assert not message.redelivered


def test_browse_tells_redelivered_messages() -> None:
    stepped = filled(1)
    consumer(stepped).vanish()
    stepped.run()
    (message,) = browse(stepped.broker, "q").messages
    assert (message.redelivered, message.deliveries) == (True, 1)


def test_browse_tells_what_may_have_been_delivered_before_a_crash() -> None:
    stepped = filled(1)
    consumer(stepped)
    (message,) = browse(stepped.reopen().broker, "q").messages
    assert message.redelivered


def test_browse_leaves_cursor_and_memory_alone() -> None:
    stepped = filled(50, memory={"limit": 10 * MESSAGE_OVERHEAD})
    client = consumer(stepped, prefetchSize="3")
    queue = stepped.queue("q")
    cursor = queue.lanes[0].cursor
    before = (cursor.position, len(cursor.window), queue.memory.used, stepped.is_turn_wanted)
    assert browsed(stepped) == numbers(*range(50))
    assert (cursor.position, len(cursor.window), queue.memory.used, stepped.is_turn_wanted) == before
    assert client.messages() == numbers(0, 1, 2)


@pytest.mark.parametrize("after", ["x", "-1", "²", "9" * 40])
def test_browse_refuses_what_is_no_page(after: str) -> None:
    with pytest.raises(InvalidArgument):
        browse(filled(1).broker, "q", after)


def test_browse_ends_a_page_before_a_damaged_record_and_then_says_so() -> None:
    store = DamagedStore()
    stepped = SteppedBroker(store=store)
    for body in (b"1", b"2", b"3"):
        send(stepped, body)
    store.damaged = 3
    management = Management(stepped.broker)
    page = browse(management.broker, "q")
    assert [message.body for message in page.messages] == ["1", "2"]
    with pytest.raises(StoreCorrupt):
        browse(management.broker, "q", page.next)
    assert total(stepped, management.purge("q")) == 3


def test_browse_pages_are_cut_by_size() -> None:
    stepped = SteppedBroker()
    for _ in range(3):
        send(stepped, bytes(1 << 20))
    page = browse(stepped.broker, "q")
    assert len(page.messages) == 1
    assert page.next is not None


@given(kinds=KINDS, page=st.integers(1, 5))
def test_browse_joins_what_is_stored_kept_and_spooled(kinds: list[str], page: int) -> None:
    assert browsed(mixed(kinds), page=page) == numbers(*range(len(kinds)))
