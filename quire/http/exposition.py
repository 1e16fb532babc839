"""Prometheus' text format, written a piece at a time: there may be very many queues."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

SLICE = 200
"""How many lines are written at once, or a few more: some milliseconds."""

T = TypeVar("T")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[str, float]]
"""What stands behind the metric's name, its labels (``labelled``) mostly; and the value."""


class Family(NamedTuple, Generic[T]):
    """A metric of many things of a kind."""

    name: str  # its name; that of a counter ends with ``_total``
    kind: Literal["counter", "gauge", "histogram"]  # what Prometheus calls it
    text: str  # what it means
    samples: Callable[[T], Samples]  # those of one thing


def written(families: Iterable[Family[T]], things: Sequence[T]) -> Iterator[bytes]:
    """The metrics of many things, in pieces."""
    for family in families:
        yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n".encode()
        for start in range(0, len(things), SLICE):
            samples = [sample for thing in things[start : start + SLICE] for sample in family.samples(thing)]
            yield lines(family.name, samples)


def lines(name: str, samples: Samples) -> bytes:
    """The lines of some samples of a metric."""
    return "".join([f"{name}{labels} {float(value)!r}\n" for labels, value in samples]).encode()


def labelled(**labels: str) -> str:
    """Labels as they are written behind a metric's name."""
    pairs = [f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items())]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
