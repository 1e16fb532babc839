"""Durable subscriptions to all topics that match a pattern."""

from itertools import pairwise

import pytest

from quire.broker.core.subscription import Subscription
from quire.errors import DestinationInUse, InvalidArgument, TooManySubscriptions
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import settings


def kept(stepped: SteppedBroker, pattern: str = "prices.>", *, selector: str | None = None) -> None:
    stepped.broker.durable_patterns.keep("client", "sub", pattern, selector=selector, no_local=False)
    stepped.run()


def publish(stepped: SteppedBroker, *topics: str, headers: str = "") -> None:
    for topic in topics:
        content = f"message-id:{topic}\ntimestamp:1\n{headers}\n{topic}".encode()
        stepped.broker.topic(topic).send(content)
    stepped.run()


def waiting(stepped: SteppedBroker) -> dict[str, int]:
    """How many messages wait, by topic."""
    return {durable.topic.destination.name: durable.depth for durable in stepped.broker.durables}


def test_topics_that_come_are_subscribed_to() -> None:
    stepped = SteppedBroker()
    kept(stepped)
    publish(stepped, "prices.eu", "prices.us", "prices.us", "news")
    assert waiting(stepped) == {"prices.eu": 1, "prices.us": 2}


def test_a_topic_beyond_the_limit_of_subscriptions_is_there_and_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    stepped = SteppedBroker(settings(broker={"max_durable_subscriptions": 2}))
    kept(stepped)
    publish(stepped, "prices.eu", "prices.us")
    assert waiting(stepped) == {"prices.eu": 1}
    told = [record.message.partition(":")[0] for record in caplog.records]
    assert told == ["sub of client does not get topic prices.us"]


def test_topics_that_come_after_a_restart_are_subscribed_to() -> None:
    stepped = SteppedBroker()
    kept(stepped, selector="urgent = 'yes'")
    publish(stepped, "prices.eu", headers="urgent:yes\n")
    stepped = stepped.reopen()
    publish(stepped, "prices.us", headers="urgent:yes\n")
    publish(stepped, "prices.us", headers="urgent:no\n")
    found = {durable.topic.destination.name: durable for durable in stepped.broker.durables}
    assert sorted(found) == ["prices.eu", "prices.us"]
    assert [found[name].definition.selector for name in sorted(found)] == ["urgent = 'yes'"] * 2


def test_it_is_removed_with_all_that_waits() -> None:
    stepped = SteppedBroker()
    kept(stepped)
    publish(stepped, "prices.eu", "prices.us")
    stepped.broker.durable_patterns.remove("client", "sub")
    stepped.run()
    stepped = stepped.reopen()
    publish(stepped, "prices.asia")
    assert waiting(stepped) == {}
    assert stepped.broker.durable_patterns.find("client", "sub") is None


def many(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern with five topics, whose removal takes three steps."""
    monkeypatch.setattr("quire.broker.topics.durables.REMOVED_AT_ONCE", 2)
    kept(stepped)
    publish(stepped, *[f"prices.{number}" for number in range(5)])


def test_the_topics_of_one_are_removed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedBroker()
    many(stepped, monkeypatch)
    stepped.broker.durable_patterns.remove("client", "sub")
    left = [len(stepped.broker.durables)]
    while left[-1]:
        assert stepped.broker.durables.find("client", "sub:prices.0") is None
        stepped.turn()
        left.append(len(stepped.broker.durables))
        stepped.commit()
    assert [before - after for before, after in pairwise(left) if after < before] == [2, 2, 1]
    stepped.run()
    assert stepped.store.marks("sub/") == []


@pytest.mark.parametrize(("commits", "left"), [(1, 1), (2, 0)])
def test_a_crash_while_it_is_removed_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, commits: int, left: int
) -> None:
    stepped = SteppedBroker()
    many(stepped, monkeypatch)
    stepped.broker.durable_patterns.remove("client", "sub")
    for _ in range(commits):
        stepped.turn()
        stepped.commit()
    assert len(stepped.broker.durables) == left
    stepped = stepped.reopen()
    stepped.run()
    assert waiting(stepped) == {}
    assert stepped.store.marks("sub/") == []
    assert stepped.broker.durable_patterns.find("client", "sub") is None


def test_one_that_comes_again_while_it_is_removed_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedBroker()
    many(stepped, monkeypatch)
    patterns, durables = stepped.broker.durable_patterns, stepped.broker.durables
    patterns.remove("client", "sub")
    patterns.keep("client", "sub", "prices.>", selector=None, no_local=False)
    durables.create("client", "sub:prices.4", stepped.broker.topic("prices.4"))
    durables.create("client", "sub:prices.0", stepped.broker.topic("prices.0"))
    publish(stepped, "prices.0")
    assert waiting(stepped) == {"prices.4": 0, "prices.0": 1}
    stepped = stepped.reopen()
    stepped.run()
    assert waiting(stepped) == {"prices.4": 0, "prices.0": 1}
    assert stepped.broker.durable_patterns.find("client", "sub") is not None


def test_a_topic_that_is_deleted_while_it_is_removed_takes_its_part_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedBroker()
    many(stepped, monkeypatch)
    stepped.broker.durable_patterns.remove("client", "sub")
    stepped.broker.destinations.delete_topic(stepped.broker.topic("prices.0"))
    stepped.run()
    assert waiting(stepped) == {}
    assert stepped.store.marks("sub/") == []


def test_another_pattern_makes_it_anew() -> None:
    stepped = SteppedBroker()
    kept(stepped)
    publish(stepped, "prices.eu")
    kept(stepped, "news.*")
    publish(stepped, "prices.eu", "news.eu")
    assert waiting(stepped) == {"news.eu": 1}


def test_one_with_a_consumer_is_not_removed() -> None:
    stepped = SteppedBroker()
    kept(stepped)
    publish(stepped, "prices.eu", "prices.us")
    (durable,) = [durable for durable in stepped.broker.durables if durable.topic.destination.name == "prices.us"]
    durable.add(Subscription(CoreConsumer(stepped).session, durable, id="consumer"))
    with pytest.raises(DestinationInUse):
        stepped.broker.durable_patterns.remove("client", "sub")
    assert waiting(stepped) == {"prices.eu": 1, "prices.us": 1}


def test_advisories_are_not_kept() -> None:
    stepped = SteppedBroker()
    kept(stepped, ">")
    publish(stepped, "ActiveMQ.Advisory.Queue", "prices.eu")
    assert waiting(stepped) == {"prices.eu": 1}


def test_patterns_count_against_the_limit_of_subscriptions() -> None:
    stepped = SteppedBroker(settings(broker={"max_durable_subscriptions": 1}))
    kept(stepped)
    kept(stepped, "news.*")  # in place of the first
    with pytest.raises(TooManySubscriptions):
        stepped.broker.durable_patterns.keep("client", "other", "news.*", selector=None, no_local=False)
    assert stepped.broker.durable_patterns.find("client", "other") is None


def test_its_name_is_as_long_as_a_destinations_may_be() -> None:
    stepped = SteppedBroker()
    stepped.broker.durable_patterns.keep("client", "s" * 500, ">", selector=None, no_local=False)
    publish(stepped, "t" * 500)
    assert waiting(stepped) == {"t" * 500: 1}
    with pytest.raises(InvalidArgument):
        stepped.broker.durable_patterns.keep("client", "s" * 501, ">", selector=None, no_local=False)
