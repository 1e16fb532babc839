"""How a status says what its fields mean and which of them are metrics: OpenAPI and the metrics are made from that."""

from typing import Literal, NamedTuple

import msgspec


class Status(msgspec.Struct, frozen=True):
    """What is known of something, as the HTTP API tells it."""


class Metric(NamedTuple):
    """The metric that a field is.

    Attributes:
        name: its name.
        kind: what Prometheus calls it.
        text: what it means.
        labels: labels beside those that say what it is about.
        absent: its value where the field is None; None: then there is none.
    """

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    labels: dict[str, str]
    absent: float | None


def doc(text: str) -> msgspec.Meta:
    """What a field means."""
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
