"""Traces through a running broker: clients of all protocols, an exporter, a collector that is gone."""

import asyncio
import http.server
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quire.client import Queue, ReceivedMessage, connect
from quire.client.sync import connect as connect_sync
from quire.client.tracing import processing
from quire.testing.embedded_broker import EmbeddedBroker
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.deploy.conftest import Stomp

pytestmark = pytest.mark.slow

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def provider() -> InMemorySpanExporter:
    """What takes the spans of this process's clients; there is one in a process."""
    exporter = InMemorySpanExporter()
    given = TracerProvider()
    given.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(given)
    return exporter


@pytest.fixture
def exporter(provider: InMemorySpanExporter) -> InMemorySpanExporter:
    provider.clear()
    return provider


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    number: int = span.parent.span_id
    return number


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.span_id
    return number


def test_a_listener_goes_on_with_the_trace_of_the_sender(exporter: InMemorySpanExporter) -> None:
    async def main(url: str) -> None:
        done = asyncio.Event()

        async def work(message: ReceivedMessage) -> None:
            async with answering.producer(Queue("billing")) as billing:
                await billing.send("bill")
            done.set()

        async with connect(f"{url}?jms.tracing=true") as connection:
            answering = connection.session()
            async with connection.session() as session, session.producer(Queue("orders")) as producer:
                await session.consumer(Queue("orders"), listener=work)
                with trace.get_tracer("test").start_as_current_span("shop"):
                    await producer.send("order", properties={"table": 7})
                await asyncio.wait_for(done.wait(), 20)

    with EmbeddedBroker() as broker:
        asyncio.run(main(broker.url))
    spans = by_name(exporter)
    chain = ["shop", "create orders", "process orders", "create billing"]
    assert set(chain) <= set(spans)
    for before, after in pairwise(chain):
        assert parent_of(spans[after]) == id_of(spans[before])


def test_receive_goes_on_where_it_says_so(exporter: InMemorySpanExporter) -> None:
    with (
        EmbeddedBroker() as broker,
        connect_sync(f"{broker.url}?jms.tracing=true") as connection,
        connection.session() as session,
        session.producer(Queue("orders")) as producer,
    ):
        producer.send("order")
        message = session.consumer(Queue("orders")).receive(20)
        assert message is not None
        with pytest.raises(ZeroDivisionError), processing(message):
            raise ZeroDivisionError
    spans = by_name(exporter)
    assert parent_of(spans["process orders"]) == id_of(spans["create orders"])
    assert spans["process orders"].status.status_code is trace.StatusCode.ERROR


def test_without_the_option_nothing_is_traced(exporter: InMemorySpanExporter) -> None:
    with EmbeddedBroker() as broker, connect_sync(broker.url) as connection, connection.session() as session:
        with session.producer(Queue("orders")) as producer, trace.get_tracer("test").start_as_current_span("shop"):
            producer.send("order")
        message = session.consumer(Queue("orders")).receive(20)
        assert message is not None
        assert message.properties == {}
    assert set(by_name(exporter)) == {"shop"}


def test_traces_pass_between_the_protocols(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    stomp = Stomp(broker.port())
    try:
        request = urllib.request.Request(
            f"{broker.http}/api/v1/queues/a/messages", json.dumps({"body": "b"}).encode(),
            {"traceparent": PARENT, "tracestate": "k=v"},
        )  # fmt: skip
        urllib.request.urlopen(request, timeout=10).close()
        with connect_sync(f"tcp://{broker._facts()['openwire']}") as connection, connection.session() as session:
            message = session.consumer(Queue("a")).receive(20)
            assert message is not None
            assert message.properties == {"traceparent": PARENT, "tracestate": "k=v"}
            with session.producer(Queue("b")) as producer:
                producer.send("order", properties={"traceparent": PARENT, "tracestate": "k=v"})
        stomp.send("SUBSCRIBE", {"id": "0", "destination": "/queue/b", "ack": "client-individual"})
        frame = stomp.receive()
        assert (frame["traceparent"], frame["tracestate"]) == (PARENT, "k=v")
        stomp.send("SEND", {"destination": "/queue/c", "traceparent": PARENT, "receipt": "r"})
        stomp.receive()
        received = urllib.request.urlopen(f"{broker.http}/api/v1/queues/c/messages", timeout=10)
        assert json.loads(received.read())["messages"][0]["headers"]["traceparent"] == PARENT
    finally:
        stomp.close()
        broker.kill()


@contextmanager
def collector() -> Iterator[tuple[str, list[str]]]:
    """A collector of OTLP: its URL, and the names of the spans that it has got."""
    names: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                raise AssertionError("the exporter is not asked to compress")
            message = ExportTraceServiceRequest.FromString(content)
            for resource in message.resource_spans:
                names.extend(span.name for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", names
        server.shutdown()
        thread.join()


def send_traced(broker: BrokerProcess) -> None:
    stomp = Stomp(broker.port())
    stomp.send("SEND", {"destination": "/queue/q", "traceparent": PARENT, "receipt": "r"})
    assert stomp.receive()["receipt-id"] == "r"
    stomp.close()


def test_a_broker_exports_its_spans_by_otlp(tmp_path: Path) -> None:
    with collector() as (url, names):
        broker = BrokerProcess(tmp_path, settings={"TRACING__ENABLED": "true", "TRACING__ENDPOINT": url})
        broker.start()
        try:
            send_traced(broker)
            broker.stop()  # it exports what is left
        finally:
            broker.kill()
        assert sorted(names) == ["commit q", "send q"]


def test_a_collector_that_is_gone_keeps_nothing_up(tmp_path: Path) -> None:
    settings = {"TRACING__ENABLED": "true", "TRACING__ENDPOINT": "http://127.0.0.1:1/v1/traces"}
    broker = BrokerProcess(tmp_path, settings=settings)
    broker.start()
    try:
        send_traced(broker)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 15
    finally:
        broker.kill()
