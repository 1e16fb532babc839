"""Spans of traced messages, from the send to the acknowledgement, in the exporter in memory of OpenTelemetry."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quire.broker.ledger import DELIVERIES, TracedDestination
from quire.clock import ManualClock
from quire.errors import StoreFull
from quire.server.otel_tracer import OtelTracer
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, settings

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Traced:
    """A broker with a tracer.

    Attributes:
        stepped: the broker.
        exporter: what takes its spans.
    """

    def __init__(self, **given: Any) -> None:
        clock, local = ManualClock(), settings(**given)
        self.exporter = InMemorySpanExporter()
        self._tracer = OtelTracer(local, clock, self.exporter)
        self.stepped = SteppedBroker(local, clock=clock, tracer=self._tracer)

    def send(self, destination: str = "q", parent: str = PARENT, **headers: str) -> SteppedClient:
        """Send a message, and store it a second later."""
        client = self.stepped.connect()
        address = destination if destination.startswith("/") else f"/queue/{destination}"
        client.frame("SEND", {"destination": address, "traceparent": parent, "tracestate": "a=b", **headers}, b"x")
        self.stepped.advance(1)
        self.stepped.run()
        return client

    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in that order."""
        self._tracer._provider.force_flush()
        return list(self.exporter.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def close(self) -> None:
        self._tracer.stop()


@pytest.fixture
def traced() -> Iterator[Traced]:
    found = Traced(policy={"maximum_redeliveries": 0})
    yield found
    found.close()


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_message_has_spans_of_its_send_commit_delivery_and_acknowledgement(traced: Traced) -> None:
    client = consumer(traced.stepped)
    traced.send()
    message = client.take("MESSAGE")[0]
    traced.stepped.advance(2)
    client.ack(message)
    traced.stepped.run()
    spans = traced.spans()
    assert [span.name for span in spans] == ["send q", "commit q", "deliver q", "acknowledge q"]
    assert [round(seconds(span)) for span in spans] == [1, 0, 2, 0]
    for span in spans:
        assert span.parent is not None
        assert span.context is not None
        assert (format(span.context.trace_id, "032x"), format(span.parent.span_id, "016x")) == (TRACE, SPAN)
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "quire"
        assert span.attributes["messaging.destination.name"] == "q"
        assert span.attributes["messaging.message.id"] == message.headers["message-id"]


def test_the_trace_is_kept_from_sender_to_receiver_and_into_a_dead_letter(traced: Traced) -> None:
    client, dead = consumer(traced.stepped), consumer(traced.stepped, "ActiveMQ.DLQ")
    traced.send()
    message = client.take("MESSAGE")[0]
    assert (message.headers["traceparent"], message.headers["tracestate"]) == (PARENT, "a=b")
    client.nack(message)
    traced.stepped.run()
    letter = dead.take("MESSAGE")[0]
    assert (letter.headers["traceparent"], letter.headers["tracestate"]) == (PARENT, "a=b")
    names = traced.names()
    assert "dead-letter q" in names
    assert names.index("deliver q") < names.index("dead-letter q")
    assert "commit ActiveMQ.DLQ" in names


def test_a_returned_message_ends_its_delivery_with_an_error() -> None:
    traced = Traced(policy={"maximum_redeliveries": 5, "initial_redelivery_delay": 0})
    client = consumer(traced.stepped)
    traced.send()
    client.nack(client.take("MESSAGE")[0])
    traced.stepped.run()
    [delivery] = [span for span in traced.spans() if span.name == "deliver q"]
    assert delivery.status.description == "returned"
    traced.close()


@pytest.mark.parametrize("parent", [f"00-{TRACE}-{SPAN}-00", "", "no trace", "00-1-1-01"])
def test_a_message_that_is_not_sampled_has_no_span_of_its_trace(traced: Traced, parent: str) -> None:
    client = consumer(traced.stepped)
    traced.send(parent=parent)
    client.ack(client.take("MESSAGE")[0])
    traced.stepped.run()
    assert not traced.spans()


def test_each_consumer_of_a_topic_has_a_delivery_of_its_own(traced: Traced) -> None:
    clients = [traced.stepped.connect() for _ in range(2)]
    for client in clients:
        client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "0", "ack": "client-individual"})
    traced.send("/topic/t")
    for wait, client in enumerate(clients, 1):
        traced.stepped.advance(wait)
        client.ack(client.take("MESSAGE")[0])
        traced.stepped.run()
    deliveries = [round(seconds(span)) for span in traced.spans() if span.name == "deliver t"]
    assert deliveries == [1, 3]


def test_streams_and_their_groups_are_traced(traced: Traced) -> None:
    member = traced.stepped.connect()
    member.frame(
        "SUBSCRIBE",
        {"destination": "/stream/s", "id": "0", "ack": "client-individual", "group": "g", "start": "earliest"},
    )
    traced.send("/stream/s")
    member.ack(member.take("MESSAGE")[0])
    traced.stepped.run()
    assert {"send s", "commit s", "deliver s", "acknowledge s"} <= set(traced.names())


def test_spans_are_limited_by_the_second() -> None:
    traced = Traced(tracing={"max_rate": 3})
    for _ in range(5):
        traced.stepped.connect().send("q", b"x", {"traceparent": PARENT})
    traced.stepped.run()
    assert len(traced.names()) == 3
    traced.stepped.advance(1)
    traced.send()
    assert len(traced.names()) == 5
    traced.close()


def test_deliveries_that_are_known_are_limited(traced: Traced) -> None:
    client = consumer(traced.stepped, prefetchSize=str(2 * DELIVERIES))
    sender = traced.stepped.connect()
    traced._tracer._limit = 10**6
    for _ in range(DELIVERIES + 10):
        sender.send("q", b"x", {"traceparent": PARENT})
    traced.stepped.run()
    ledger = traced.stepped.queue("q").ledger
    assert isinstance(ledger, TracedDestination)
    assert len(ledger._deliveries) == DELIVERIES
    client.session.closed()
    traced.stepped.run()
    assert not ledger._deliveries
    assert not ledger._consumers


def test_the_ledger_is_kept_beside_traces_and_only_where_its_policy_says_so() -> None:
    traced = Traced(policy={"ledger": True})
    client = consumer(traced.stepped)
    traced.send()
    client.ack(client.take("MESSAGE")[0])
    traced.stepped.advance(2)
    traced.stepped.run()
    assert traced.stepped.broker.destinations.streams
    assert "acknowledge q" in traced.names()
    traced.close()
    without = Traced()
    without.send()
    assert not without.stepped.broker.destinations.streams
    without.close()


def test_a_commit_that_fails_ends_its_spans(traced: Traced) -> None:
    traced.stepped.connect().send("q", b"x", {"traceparent": PARENT})
    traced.stepped.turn()
    traced.stepped.commit(StoreFull("full"))
    traced.stepped.run()
    assert traced.names() == ["send q", "commit q"]


def test_a_broker_without_a_tracer_has_nothing_to_ask() -> None:
    stepped = SteppedBroker(settings())
    stepped.connect().send("q", b"x", {"traceparent": PARENT})
    stepped.run()
    assert stepped.queue("q").ledger is None
    assert not stepped.broker.ledger.is_asked_for
