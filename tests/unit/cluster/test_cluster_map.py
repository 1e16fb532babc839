"""The map says where destinations and shards are; it tells listeners of changes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quire.cluster.cluster_map import FRONT, ClusterMap, LivingBroker, Peer, Pin, Placement, shard_of_key
from quire.destination import queue, topic
from quire.settings import Settings

KEYS = st.text(min_size=1, max_size=20)


def cluster_map(own: int = 0, shards: int = 6) -> ClusterMap:
    return ClusterMap(own, shards, Placement(Settings()))


def test_destinations_are_spread_evenly_over_the_shards() -> None:
    known = cluster_map()
    counts = Counter([known.shard_of(queue(f"orders.{number}")) for number in range(3000)])
    assert all(400 < counts[shard] < 600 for shard in range(6))


@given(KEYS, st.integers(1, 30))
def test_a_key_moves_to_a_new_shard_or_not_at_all(key: str, shards: int) -> None:
    assert shard_of_key(key, shards + 1) in (shard_of_key(key, shards), shards)


@given(KEYS, st.integers(0, 5))
def test_all_processes_say_the_same(key: str, own: int) -> None:
    destination = queue("q" + "".join([char for char in key if char.isalnum()]))
    assert cluster_map(own).shard_of(destination) == cluster_map(FRONT).shard_of(destination)


def test_what_is_spread_is_here() -> None:
    for own in (3, FRONT):
        known = cluster_map(own)
        assert known.is_spread(queue("ActiveMQ.DLQ"))
        assert known.shard_of(queue("ActiveMQ.DLQ")) == own
        assert known.is_own(queue("ActiveMQ.DLQ"))
        assert not known.is_spread(queue("orders"))


def test_a_pin_moves_all_that_lie_together() -> None:
    known = cluster_map()
    known.update({}, {"topic://VirtualTopic.x": Pin(4, 1)})
    assert known.shard_of(topic("VirtualTopic.x")) == known.shard_of(queue("Consumer.A.VirtualTopic.x")) == 4
    known.update({}, {})
    assert known.shard_of(topic("VirtualTopic.x")) == cluster_map().shard_of(topic("VirtualTopic.x"))


def test_of_what_the_own_store_and_the_database_say_the_newer_one_counts() -> None:
    known = cluster_map()
    home = known.shard_of(queue("q"))
    away, further = (home + 1) % 6, (home + 2) % 6
    known.keep({"queue://q": Pin(away, 2)})
    known.update({1: Peer("a", 1)}, {"queue://q": Pin(further, 1)})  # the database is behind
    assert known.shard_of(queue("q")) == known.pinned("queue://q") == away
    known.update({}, {"queue://q": Pin(further, 3)})
    assert known.shard_of(queue("q")) == further
    assert known.kept_pin("queue://q") == Pin(away, 2)
    known.update({}, {})
    assert known.shard_of(queue("q")) == away
    known.update({}, {"queue://q": Pin(home, 3)})
    assert known.shard_of(queue("q")) == home
    assert known.pinned("queue://q") is None


def test_listeners_hear_which_shards_have_changed() -> None:
    known, heard = cluster_map(), list[frozenset[int]]()
    known.listen(heard.append)
    first, second = Peer("a:1", 1, "athens"), Peer("a:1", 2, "athens")
    known.update({0: first, 1: first}, {})
    known.update({0: first, 1: first}, {})
    known.update({0: second}, {})
    known.update({0: second}, {}, (LivingBroker("athens", "s", "o", "h"),))
    known.update({0: second}, {"queue://q": Pin(1, 1)}, known.brokers)
    assert heard == [{0, 1}, {0, 1}, set(), set()]
    assert (known.peer(0), known.peer(1)) == (second, None)
    assert [broker.name for broker in known.brokers] == ["athens"]


def test_a_client_id_is_at_one_shard() -> None:
    assert len({cluster_map(own).shard_of_client("client") for own in range(6)}) == 1
