"""Spans for OpenTelemetry, exported by OTLP: a thread of the exporter sends them, the event loop only puts them down.

Only a broker with ``tracing.enabled`` imports this module: it needs the extra ``otel``.
"""

import logging

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from quire import __version__
from quire.clock import Clock
from quire.logs import event
from quire.settings import Settings

KINDS = {"send": trace.SpanKind.SERVER, "acknowledge": trace.SpanKind.SERVER, "deliver": trace.SpanKind.PRODUCER}
"""The kinds of spans; the others are internal."""

TYPES = {"send": "send", "deliver": "receive", "acknowledge": "settle", "dead-letter": "settle", "expire": "settle"}
"""What OpenTelemetry calls an operation, where it has a name."""


class OtelSpan:
    """A span of OpenTelemetry, with the time of the tracer."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, span: trace.Span, tracer: "OtelTracer") -> None:
        self._span = span
        self._tracer = tracer

    def end(self, error: str = "") -> None:
        if error:
            self._span.set_status(trace.StatusCode.ERROR, error)
        self._span.end(self._tracer.now())


class OtelTracer:
    def __init__(self, settings: Settings, clock: Clock, exporter: SpanExporter) -> None:
        self._clock = clock
        self._limit = settings.tracing.max_rate
        self._second = self._made = self._left_out = 0
        self._epoch = clock.now_ms() * 1_000_000 - int(clock.monotonic() * 1e9)
        resource = Resource.create(
            {"service.name": "quire", "service.version": __version__, "service.instance.id": settings.broker.name}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("quire", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def now(self) -> int:
        """The time, in nanoseconds since the epoch; it never goes back."""
        return self._epoch + int(self._clock.monotonic() * 1e9)

    def span(
        self, operation: str, destination: str, parent: str, message_id: str, since: int | None = None
    ) -> OtelSpan | None:  # fmt: skip
        """Begin a span; see ``quire.broker.core.core.Tracer``."""
        now = self.now()
        if not self._is_within_rate(now // 1_000_000_000):
            return None
        name = destination.partition("://")[2]
        attributes = {
            "messaging.system": "quire", "messaging.destination.name": name, "messaging.message.id": message_id,
            "messaging.operation.name": operation,
        }  # fmt: skip
        if operation in TYPES:
            attributes["messaging.operation.type"] = TYPES[operation]
        context = self._propagator.extract({"traceparent": parent})
        kind = KINDS.get(operation, trace.SpanKind.INTERNAL)
        return OtelSpan(
            self._tracer.start_span(f"{operation} {name}", context, kind, attributes, start_time=since or now), self
        )

    def _is_within_rate(self, second: int) -> bool:
        """Whether another span may be made in this second; of those left out the log tells when they are over."""
        if second != self._second:
            if self._left_out:
                text = f"{self._left_out} spans were left out: tracing.max_rate is {self._limit} a second"
                event("tracing.limited", text, logging.WARNING, left_out=self._left_out, limit=self._limit)
            self._second, self._made, self._left_out = second, 0, 0
        if self._made >= self._limit:
            self._left_out += 1
            return False
        self._made += 1
        return True

    def stop(self) -> None:
        """Export what is left; a collector that does not answer keeps this up for some seconds."""
        self._provider.shutdown()
