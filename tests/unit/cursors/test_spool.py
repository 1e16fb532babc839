"""The spool: non-persistent messages wait here, by the lanes and sequences of the destinations."""

import pytest

from quire.cursors.spool import Spool
from quire.store.base import Delivery
from quire.store.memory import MemoryStore
from tests.unit.cursors.lane import EVERYTHING, make_message, opened, sequences


@pytest.fixture
def store() -> MemoryStore:
    return opened()


@pytest.fixture
def spool(store: MemoryStore) -> Spool:
    return Spool(store, limit=1000)


def test_a_new_one_is_empty(spool: Spool) -> None:
    assert spool.is_empty(1)
    assert spool.used == 0
    assert spool.page(1, 1, EVERYTHING, 10).messages == []


def test_lanes_stand_apart_and_what_is_used_counts_all(spool: Spool) -> None:
    spool.append(1, [make_message(3, 100), make_message(7, 50)])
    spool.append(2, [make_message(4, 60)])
    assert spool.used == 210
    assert sequences(spool.page(1, 1, EVERYTHING, 10).messages) == [3, 7]
    spool.remove(1, [3, 7])
    assert spool.is_empty(1)
    assert not spool.is_empty(2)
    assert spool.used == 60


def test_what_is_not_there_is_removed_already(spool: Spool) -> None:
    spool.append(1, [make_message(3, 100)])
    spool.remove(1, [2, 3, 4])
    spool.remove(1, [3])
    assert spool.used == 0


def test_messages_come_out_not_persistent_and_readable_again(spool: Spool) -> None:
    spool.append(1, [make_message(3, 100, persistent=False, stored=True)])
    [message] = spool.page(1, 1, EVERYTHING, 10).messages
    assert not message.persistent
    assert message.stored
    assert message.content == make_message(3, 100).content


def test_a_page_and_links_begin_where_they_are_asked_to(spool: Spool) -> None:
    spool.append(1, [make_message(sequence, 100) for sequence in (3, 5, 9)])
    page = spool.page(1, 4, EVERYTHING, 1)
    assert sequences(page.messages) == [5]
    assert not page.end
    assert [(link.sequence, link.size) for link in spool.links(1, 5, 10)] == [(5, 100), (9, 100)]


def test_delivery_states_come_back_with_their_messages(spool: Spool) -> None:
    spool.append(1, [make_message(3), make_message(5)])
    spool.set_deliveries(1, {3: Delivery(2, failures=1)})
    first, second = spool.page(1, 1, EVERYTHING, 10).messages
    assert (first.deliveries, first.failures, first.redelivered) == (2, 1, True)
    assert (second.deliveries, second.redelivered) == (0, False)


def test_closing_closes_the_store(spool: Spool, store: MemoryStore) -> None:
    spool.close()
    store.open()
    assert store.try_lock("another")
