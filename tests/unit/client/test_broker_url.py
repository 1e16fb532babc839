"""The URLs of brokers and the options in them."""

from random import Random

import pytest

from quire.client.destinations import Queue
from quire.client.options import BrokerAddresses, ConsumerOptions, FailoverOptions, consumer_options, read_url
from quire.errors import InvalidArgument, InvalidDestination


def addresses(url: str) -> list[str]:
    return [str(address) for address in read_url(url).addresses]


def test_one_broker_with_options() -> None:
    url = read_url(
        "tcp://localhost:1234?jms.prefetchPolicy.queuePrefetch=10&jms.redeliveryPolicy.maximumRedeliveries=3"
        "&jms.optimizeAcknowledge=true&wireFormat.maxInactivityDuration=0&connectionTimeout=5&jms.clientID=me"
    )
    assert [str(address) for address in url.addresses] == ["tcp://localhost:1234"]
    assert url.failover is None
    assert url.options.prefetch_policy.queue_prefetch == 10
    assert url.options.prefetch_policy.topic_prefetch == -1
    assert url.options.redelivery_policy.maximum_redeliveries == 3
    assert url.options.optimize_acknowledge
    assert url.options.client_id == "me"
    assert url.addresses[0].options.wire_format.max_inactivity_duration == 0
    assert url.addresses[0].options.connection_timeout == 5


@pytest.mark.parametrize(("text", "found"), [
    ("tcp://h", ["tcp://h:61616"]), ("ssl://h:61617", ["ssl://h:61617"]), ("nio://[::1]:5", ["tcp://[::1]:5"]),
    ("failover:(tcp://a:1,tcp://b:2)", ["tcp://a:1", "tcp://b:2"]),
    ("failover://(tcp://a:1)?randomize=false", ["tcp://a:1"]), ("failover:tcp://a:1", ["tcp://a:1"]),
    ("failover:tcp://a:1, ssl://b:2", ["tcp://a:1", "ssl://b:2"]),
])  # fmt: skip
def test_addresses(text: str, found: list[str]) -> None:
    assert addresses(text) == found


def test_failover_with_options_of_every_kind() -> None:
    url = read_url(
        "failover:(tcp://a:1?connectionTimeout=7,tcp://b:2)?maxReconnectAttempts=3&priorityURIs=tcp://b:2"
        "&jms.useAsyncSend=true&nested.wireFormat.cacheEnabled=true"
    )
    assert url.failover == FailoverOptions(max_reconnect_attempts=3, priority_uris="tcp://b:2")
    assert url.options.use_async_send
    assert [address.options.connection_timeout for address in url.addresses] == [7, 30_000]
    assert all(address.options.wire_format.cache_enabled for address in url.addresses)


@pytest.mark.parametrize(("text", "says"), [
    ("tcp://h?jms.prefetchPolicy.queuePrefech=1", r"jms\.prefetchPolicy\.queuePrefetch"),
    ("tcp://h?wireFormat.tightEncoding=true", r"wireFormat\.tightEncodingEnabled"),
    ("failover:(tcp://h)?maxReconectAttempts=1", "maxReconnectAttempts"),
    ("failover:(tcp://h?jms.useAsyncSend=true)", "jms.useAsyncSend"),
    ("tcp://h?jms.redeliveryPolicy.maximumRedeliveries=-2", "give a whole number, at least -1"),
    ("tcp://h?jms.useAsyncSend=yes", "give true or false"), ("tcp://h?jms.sendTimeout=1s", "a whole number"),
    ("tcp://h?jms.sendTimeout=1&jms.sendTimeout=2", "each one once"), ("tcp://h?x", "NAME=VALUE"),
    ("http://h", "tcp://HOST:PORT"), ("tcp://h:70000", "not a number up to 65535"), ("tcp://", "tcp://HOST:PORT"),
    ("failover:(tcp://h", "failover:"), ("failover:()", "tcp://HOST:PORT"), ("tcp://h/path", "tcp://HOST:PORT"),
])  # fmt: skip
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        read_url(text)


def test_options_of_the_java_client_that_mean_nothing_here_are_accepted() -> None:
    assert (
        read_url("tcp://h?jms.watchTopicAdvisories=false&jms.copyMessageOnSend=false").options
        == read_url("tcp://h").options
    )


def test_options_in_the_name_of_a_destination() -> None:
    queue = Queue("orders?consumer.prefetchSize=1&consumer.exclusive=true&consumer.selector=a%3D1")
    assert (queue.name, str(queue)) == ("orders", "queue://orders")
    assert consumer_options(queue) == ConsumerOptions(prefetch_size=1, exclusive=True, selector="a=1")
    assert queue == Queue("orders")
    with pytest.raises(InvalidArgument, match=r"consumer\.exclusive"):
        consumer_options(Queue("orders?consumer.exclusiv=true"))
    with pytest.raises(InvalidArgument, match="prefetchSize"):
        consumer_options(Queue("orders?prefetchSize=1"))


@pytest.mark.parametrize("name", ["", " ", "a,,b", "a\nb", "x" * 501, "a?b"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidDestination):
        Queue(name)


def test_delays_between_rounds_grow_to_a_maximum() -> None:
    options = FailoverOptions(max_reconnect_delay=100)
    assert [options.delay_ms(rounds) for rounds in (1, 2, 3, 4, 5, 10**6)] == [10, 20, 40, 80, 100, 100]
    assert FailoverOptions(use_exponential_back_off=False).delay_ms(9) == 10


def test_the_limit_of_rounds_at_the_start_may_be_another() -> None:
    assert FailoverOptions(max_reconnect_attempts=3).limit(first=True) == 3
    assert FailoverOptions(max_reconnect_attempts=3, startup_max_reconnect_attempts=1).limit(first=True) == 1
    assert FailoverOptions().limit(first=False) == -1


def rounds_of(url: str) -> BrokerAddresses:
    read = read_url(url)
    assert read.failover is not None
    return BrokerAddresses(read, read.failover, Random(3))


def test_brokers_are_tried_in_order_or_at_random() -> None:
    brokers = ",".join(f"tcp://b{number}:1" for number in range(8))
    in_order = [str(address) for address in rounds_of(f"failover:({brokers})?randomize=false").next_round()]
    at_random = [str(address) for address in rounds_of(f"failover:({brokers})").next_round()]
    assert in_order == brokers.split(",")
    assert at_random != in_order
    assert sorted(at_random) == in_order


def test_preferred_brokers_and_the_one_that_was_named_come_first() -> None:
    url = "failover:(tcp://a:1,tcp://b:2,tcp://c:3)?randomize=false&priorityBackup=true&priorityURIs=tcp://c:3"
    brokers = rounds_of(url)
    assert [address.host for address in brokers.next_round()] == ["c", "a", "b"]
    brokers.go_to("tcp://b:2?maximumConnections=1")
    assert [address.host for address in brokers.next_round()] == ["b", "c", "a"]
    assert [address.host for address in brokers.next_round()] == ["c", "a", "b"]


def test_a_broker_names_the_others_of_its_cluster() -> None:
    brokers = rounds_of("failover:(tcp://a:1)?randomize=false")
    brokers.update("tcp://x:1?trace=true,nonsense,tcp://a:1")
    assert [str(address) for address in brokers.next_round()] == ["tcp://x:1", "tcp://a:1"]
