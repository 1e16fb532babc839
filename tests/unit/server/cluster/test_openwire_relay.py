"""OpenWire clients whose destinations are at other shards than the one that they have connected to."""

from quire.protocols.openwire.commands import MessageDispatch
from tests.unit.server.cluster.openwire_cluster import OpenWireCluster
from tests.unit.server.openwire.rig import texts


def test_a_message_goes_to_the_shard_that_has_its_queue() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    producer, consumer = cluster.client(0), cluster.client(0)
    producer.send("one", "two", destination=there)
    assert (cluster.depth(0, there), cluster.depth(1, there)) == (0, 2)
    consumer.consumer(there)
    dispatches = consumer.take(MessageDispatch)
    assert texts(dispatches) == ["one", "two"]
    consumer.acks(dispatches)
    assert cluster.depth(1, there) == 0
    assert not consumer.errors()
