"""Traces over messages, as W3C's Trace Context and OpenTelemetry have them. It needs the extra ``otel``.

With the option ``jms.tracing=true`` of a connection, a send continues the trace of the code around it, and a listener
runs within the trace of its message. What takes messages with ``receive`` says so itself::

    message = await consumer.receive()
    with processing(message):
        ...
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from quire.client.destinations import ClientDestination
from quire.client.message import Message

_PROPAGATOR = TraceContextTextMapPropagator()


class Traced(Protocol):
    """A message that was received, of ``quire.client`` or of ``quire.client.sync``."""

    @property
    def id(self) -> str:
        """The message's id."""

    @property
    def destination(self) -> ClientDestination | None:
        """Where it was sent to."""

    @property
    def properties(self) -> dict[str, Any]:
        """The application's properties."""


@contextmanager
def processing(message: Traced) -> Iterator[trace.Span]:
    """Process a message within its trace: spans of the block, and messages sent in it, belong to the trace.

    Args:
        message: the message. Without a trace of its own it begins a new one.

    Returns:
        The span, for attributes of the application. An exception of the block is noted in it.
    """
    attributes = {"messaging.message.id": message.id, "messaging.operation.type": "process"}
    name = _name(message.destination)
    kind = trace.SpanKind.CONSUMER
    with _span(f"process {name}", kind, name, attributes, _context(message.properties)) as span:
        yield span


def traced(message: Message, destination: ClientDestination) -> Message:
    """A message to send, with the trace of the code that sends it; without one, with that of its own properties.

    Args:
        message: what the application gave.
        destination: where it goes.
    """
    is_in_trace = trace.get_current_span().get_span_context().is_valid
    context = None if is_in_trace else _context(message.properties)
    name = _name(destination)
    attributes = {"messaging.operation.type": "create"}
    with _span(f"create {name}", trace.SpanKind.PRODUCER, name, attributes, context):
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
    return replace(message, properties={**message.properties, **carrier})


@contextmanager
def _span(
    name: str, kind: trace.SpanKind, destination: str, attributes: dict[str, str], context: Context | None
) -> Iterator[trace.Span]:
    attributes |= {"messaging.system": "quire", "messaging.destination.name": destination}
    tracer = trace.get_tracer("quire.client")
    with tracer.start_as_current_span(name, context, kind, attributes) as span:
        yield span


def _context(properties: Mapping[str, Any]) -> Context:
    return _PROPAGATOR.extract({name: str(properties[name]) for name in _PROPAGATOR.fields if name in properties})


def _name(destination: ClientDestination | None) -> str:
    return "" if destination is None else destination.name
