"""How a status says what its fields mean and which of them are metrics: OpenAPI and the metrics are made from that."""

from typing import Literal, NamedTuple

import msgspec


class Status(msgspec.Struct, frozen=True):
    """What is known of something, as the HTTP API tells it."""


class Metric(NamedTuple):
    """The metric that a field is."""

    name: str  # its name
    kind: Literal["counter", "gauge"]  # what Prometheus calls it
    text: str  # what it means
    labels: dict[str, str]  # labels beside those that say what it is about
    absent: float | None  # its value where the field is None; None: then there is none


def doc(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


def gauge(name: str, text: str, absent: float | None = None, **labels: str) -> msgspec.Meta:
    """A field that is a metric too, which goes up and down."""
    return msgspec.Meta(description=text, extra={"metric": Metric(name, "gauge", text, labels, absent)})


def counter(name: str, text: str, **labels: str) -> msgspec.Meta:
    """A field that is a metric too, which only goes up while the broker runs."""
    return msgspec.Meta(description=text, extra={"metric": Metric(f"{name}_total", "counter", text, labels, None)})


def metrics(kind: type[Status]) -> dict[str, Metric]:
    """The metrics among the fields of a status, by field."""
    notes = {field.name: getattr(field.type, "__metadata__", ()) for field in msgspec.structs.fields(kind)}
    return {name: note.extra["metric"] for name, found in notes.items() for note in found if note.extra}
