"""SUBSCRIBE and what follows it: headers, options, limits, runs of acknowledgements."""

import pytest

from quire.broker.queues.browsing import Browser
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import bodies, consumer, filled, numbers
from tests.unit.broker.subscribing import error_of, subscribe, subscribed

# Headers and options.


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("activemq.exclusive", ["yes", "1"]),
        ("activemq.noLocal", ["yes", "true"]),
        ("no-local", ["true"]),
        ("activemq.retroactive", ["maybe"]),
        ("browser", ["yes"]),
        ("activemq.subscriptionName", ["name", ""]),
        ("durable-subscription-name", ["name"]),
    ],
)
def test_wrong_values_of_headers_are_refused(header: str, values: list[str]) -> None:
    for value in values:
        assert error_of({header: value}) == "invalid-header"


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("activemq.prefetchSize", ["-1", "many", ""]),
        ("prefetch-count", ["-1", "many", ""]),
        ("activemq.priority", ["-129", "128", "high"]),
        ("activemq.maximumPendingMessageLimit", ["-2", "x"]),
    ],
)
def test_a_number_that_is_not_possible_is_as_if_it_were_not_there(
    header: str, values: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for value in values:
        stepped = filled(1)
        client = subscribed(stepped, "/queue/q", "client", **{header: value})
        assert (client.messages(), client.errors()) == ([b"0"], [])
        (subscription,) = stepped.queue("q").subscriptions
        assert (subscription.prefetch, subscription.priority) == (1000, 0)
        assert header in caplog.text


@pytest.mark.parametrize("headers", [{"activemq.prefetchSize": "2147483647"}, {"prefetch-count": "0"}])
def test_the_largest_prefetch_is_what_a_client_gets_that_asks_for_more(headers: dict[str, str]) -> None:
    stepped = filled(1)
    client = stepped.connect()
    client.subscribe("q", headers=headers)
    stepped.run()
    assert [subscription.prefetch for subscription in stepped.queue("q").subscriptions] == [1_000_000]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_acknowledgement_may_have_all_headers_of_its_message(version: str, command: str) -> None:
    if (version, command) == ("1.0", "NACK"):
        pytest.skip("1.0 has no NACK")
    stepped = filled(0)
    stepped.connect().send("q", b"hello", {"content-length": "5", "a": "b"})
    client = stepped.connect(version)
    client.subscribe("q")
    stepped.run()
    (message,) = client.take("MESSAGE")
    assert message.headers["content-length"] == "5"
    headers = {**message.headers, "receipt": "r"}
    if version == "1.2":
        headers["id"] = headers["ack"]
    lines = "".join([f"{name}:{value}\n" for name, value in headers.items()])
    client.feed(f"{command}\n{lines}\n\0".encode())
    stepped.run()
    assert (client.errors(), client.receipts()) == ([], ["r"])
    assert stepped.queue("q").depth == (0 if command == "ACK" else 1)


def test_a_selector_that_cannot_be_read_is_refused() -> None:
    assert error_of({"selector": "color = "}) == "invalid-selector"
    assert error_of({}, "/queue/q?consumer.selector=color+%3D") == "invalid-selector"


@pytest.mark.parametrize("value", ["true", "TRUE", " true "])
def test_truth_is_written_in_any_case(value: str) -> None:
    stepped = SteppedBroker()
    plain, exclusive = consumer(stepped), subscribed(stepped, "/queue/q", activemq__exclusive=value)
    stepped.connect().send("q", b"1")
    stepped.run()
    assert (plain.messages(), exclusive.messages()) == ([], [b"1"])


@pytest.mark.parametrize("others", ["", "&consumer.priority=3&consumer.exclusive=true"])
def test_options_of_the_destination_hold(others: str) -> None:
    stepped = filled(5)
    client = subscribed(stepped, f"/queue/q?consumer.prefetchSize=2{others}", "client-individual")
    frames = client.take("MESSAGE")
    assert bodies(frames) == numbers(0, 1)
    assert {frame.headers["destination"] for frame in frames} == {"/queue/q"}


def test_a_header_stands_over_the_option_that_means_the_same() -> None:
    stepped = filled(5)
    client = subscribed(stepped, "/queue/q?consumer.prefetchSize=2", "client", activemq__prefetchSize="3")
    assert client.messages() == numbers(0, 1, 2)


def test_a_selector_may_be_an_option() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped, "/queue/q?consumer.selector=color+IN+('red'%2C'blue')")
    producer = stepped.connect()
    for color in ("red", "green", "blue"):
        producer.send("q", color.encode(), {"color": color})
    stepped.run()
    assert client.messages() == [b"red", b"blue"]


def test_headers_that_mean_nothing_for_a_queue_are_passed_over() -> None:
    stepped = filled(1)
    client = subscribed(
        stepped, "/queue/q", activemq__retroactive="true", activemq__maximumPendingMessageLimit="5",
        activemq__dispatchAsync="true", durable="true", activemq__noLocal="false",
    )  # fmt: skip
    assert client.messages() == [b"0"]


@pytest.mark.parametrize("destination", ["/queue/q", "/queue/q.*", "/topic/t"])
def test_two_subscriptions_may_have_the_same_id_and_end_together(destination: str) -> None:
    stepped = filled(1)
    client = stepped.connect()
    subscribe(client, destination)
    subscribe(client, "/queue/other")
    stepped.run()
    stepped.connect().send("other", b"too")
    stepped.run()
    assert client.messages()[-1] == b"too"
    client.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    assert client.errors() == []
    assert client.session.subscriptions == {}
    assert not stepped.queue("other").subscriptions


def test_an_unknown_ack_mode_is_auto_and_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    stepped = filled(2)
    client = subscribed(stepped, "/queue/q", "maybe")
    assert client.messages() == [b"0", b"1"]
    stepped.run()
    assert stepped.queue("q").depth == 0
    assert "unknown ack mode 'maybe'" in caplog.text


def test_a_run_of_acknowledgements_is_done_but_for_what_is_unknown() -> None:
    stepped = filled(4)
    client = subscribed(stepped, "/queue/q", "client-individual")
    acks = [frame.headers["ack"] for frame in client.take("MESSAGE")]
    run = [acks[0], "99", acks[1], "0", acks[1], acks[2]]
    client.feed(b"".join(b"ACK\nid:%s\n\n\0" % ack.encode() for ack in run))
    assert "'99'" in client.take("ERROR")[0].headers["message"]
    stepped.run()
    assert stepped.queue("q").depth == 1


def test_a_run_of_acknowledgements_for_several_subscriptions_is_done_but_for_what_is_unknown() -> None:
    stepped = filled(2)
    client = stepped.connect()
    subscribe(client, "/queue/q", "0", "client-individual")
    subscribe(client, "/queue/other", "1", "client-individual")
    stepped.run()
    acks = [frame.headers["ack"] for frame in client.take("MESSAGE")]
    client.feed(b"".join(b"ACK\nid:%s\n\n\0" % ack.encode() for ack in (acks[0], "7-1", acks[1])))
    assert client.errors() == ["unknown-message"]
    stepped.run()
    assert stepped.queue("q").depth == 0


@pytest.mark.parametrize("id", ["1-" + "9" * 5000, "9" * 5000, "9" * 5000 + "-0", "1-9223372036854775808", "1-\u00b2"])
def test_an_acknowledgement_with_a_number_that_is_none_is_about_no_message(id: str) -> None:
    for more in ({}, {"receipt": "r"}):
        client = subscribed(filled(1), "/queue/q", "client-individual")
        client.frame("ACK", {"id": id, **more})
        assert client.errors() == ["unknown-message"]


def test_a_browser_is_listed_among_the_consumers_of_its_connection_only() -> None:
    stepped = filled(1)
    client = subscribed(stepped, "/queue/q", browser="true")
    assert stepped.queue("q").subscriptions == []
    (subscription,) = client.session.subscriptions.values()
    assert isinstance(subscription.source, Browser)
