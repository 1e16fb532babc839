"""For how long a broker knows the numbers of producers: those that sent last, not for ever, and never too many."""

from typing import Any

import pytest

from quire.broker import producer_ids
from quire.broker.producer_ids import PERIOD_MS
from quire.errors import StoreFull, UnknownProducer
from quire.store.base import Store, WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings

DAY = 86_400.0


def broker(store: Store | None = None, **producer: Any) -> SteppedBroker:
    return SteppedBroker(settings(producer=producer), store=store)


def send(stepped: SteppedBroker, *producers: str, number: int = 1) -> None:
    """One numbered message of each producer; stored."""
    client = stepped.connect()
    for producer in producers:
        client.send("q", producer.encode(), {"producer-id": producer, "producer-sequence": str(number)})
    stepped.run()


def known(stepped: SteppedBroker) -> list[str]:
    """All producers; the store has the same, and their marks."""
    ids = stepped.broker.producers.ids()
    assert [id for id, _ in stepped.store.producers()] == ids
    assert len(stepped.store.marks("producer/")) == len(ids) == len(stepped.broker.producers)
    return ids


def test_those_that_sent_last_are_known_and_the_others_forgotten() -> None:
    stepped = broker(id_cache_size=3)
    send(stepped, "a", "b", "c")
    send(stepped, "a", number=2)
    send(stepped, "d", "e")
    assert known(stepped) == ["a", "d", "e"]
    assert stepped.broker.producers.forgotten == 2
    depth = stepped.queue("q").depth
    send(stepped, "a", number=2)  # a duplicate
    send(stepped, "b")  # forgotten: it is new
    assert stepped.queue("q").depth == depth + 1


def test_one_that_only_repeats_itself_counts_as_sending() -> None:
    stepped = broker(id_cache_size=2)
    send(stepped, "a", "b")
    send(stepped, "a")
    send(stepped, "c")
    assert known(stepped) == ["a", "c"]


def test_never_more_than_the_limit_are_known_whatever_one_commit_brings() -> None:
    stepped = broker(id_cache_size=10)
    client = stepped.connect()
    for number in range(100):
        client.send("q", b"", {"producer-id": f"p{number:03}", "producer-sequence": "1"})
        assert len(stepped.broker.producers) <= 10
    stepped.run()
    assert known(stepped) == [f"p{number:03}" for number in range(90, 100)]


def test_the_order_is_known_after_a_restart() -> None:
    stepped = broker(id_cache_size=3)
    for producer in "cab":
        send(stepped, producer)
        stepped.advance(PERIOD_MS / 1000)
    again = stepped.reopen()
    assert known(again) == ["a", "b", "c"]
    send(again, "d")
    assert known(again) == ["a", "b", "d"]


def test_a_producer_that_was_silent_for_too_long_is_forgotten() -> None:
    stepped = broker(id_max_age=7 * DAY)
    send(stepped, "a", "b")
    stepped.advance(6 * DAY)
    send(stepped, "b", number=2)
    stepped.advance(DAY - 60)
    stepped.run()
    assert known(stepped) == ["a", "b"]
    stepped.advance(PERIOD_MS / 1000 + 180)
    stepped.run()
    assert known(stepped) == ["b"]
    stepped = stepped.reopen()
    stepped.advance(7 * DAY)
    stepped.run()
    assert known(stepped) == []


def test_many_are_forgotten_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "STEP", 3)
    stepped = broker(id_max_age=DAY)
    send(stepped, *[f"p{number:02}" for number in range(20)])
    stepped.advance(2 * DAY)
    stepped.turn()
    assert stepped.writer.batch is not None
    assert len(stepped.writer.batch.producers) == 3
    stepped.run()
    assert known(stepped) == []


def test_a_lower_limit_counts_from_the_next_start() -> None:
    stepped = broker()
    send(stepped, *"abcde")
    again = broker(stepped.store, id_cache_size=2)
    again.run()
    assert len(known(again)) == 2


def test_producers_from_before_there_were_marks_are_known_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "STEP", 2)
    store = MemoryStore()
    store.open()
    store.apply(WriteBatch(producers={producer: 5 for producer in "abcdefg"}))
    stepped = broker(store, id_cache_size=4)
    stepped.run()
    assert known(stepped) == ["a", "b", "c", "d"]
    send(stepped, "a", number=5)
    assert stepped.queue("q").depth == 0
    send(stepped, "x")
    assert len(known(stepped)) == 4
    assert {"a", "x"} < set(known(stepped))


def test_what_is_forgotten_in_a_commit_that_fails_stays_forgotten() -> None:
    stepped = broker(id_cache_size=1)
    send(stepped, "a")
    client = stepped.connect()
    client.send("q", b"", {"producer-id": "b", "producer-sequence": "7"})
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert [id for id, _ in stepped.store.producers()] == []
    assert stepped.broker.producers.sequence("b") == 0
    send(stepped, "b", number=7)
    assert known(stepped) == ["b"]


def test_one_is_forgotten_by_order() -> None:
    stepped = broker()
    send(stepped, "a", "b", number=3)
    status = stepped.broker.producers.status("b")
    assert (status.id, status.sequence, status.last_sent) == ("b", 3, stepped.clock.now_ms())
    stepped.broker.producers.forget("a")
    stepped.run()
    assert known(stepped) == ["b"]
    with pytest.raises(UnknownProducer):
        stepped.broker.producers.forget("a")


def test_an_id_that_fits_no_key_is_known_too() -> None:
    long = "\u20ac" * 200
    stepped = broker()
    send(stepped, long)
    again = stepped.reopen()
    assert again.broker.producers.ids() == [long]
    send(again, long)
    assert again.queue("q").depth == 1
