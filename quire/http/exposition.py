"""Prometheus' text format, written piece by piece: with ten thousand queues the whole takes a second.

Metrics without a destination are few: those are written by Prometheus' own library (``quire.http.metrics``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

SLICE = 200
"""How many lines are written at once, or a few more: some milliseconds."""

T = TypeVar("T")

Samples = Iterable[tuple[tuple[str, ...], float]]


class Family(NamedTuple, Generic[T]):
    """A metric of many things of a kind.

    Attributes:
        name: its name; that of a counter ends with ``_total``.
        kind: what Prometheus calls it.
        text: what it means.
        labels: the names of its labels.
        samples: of one thing: the values of the labels, and the metric's.
    """

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    labels: tuple[str, ...]
    samples: Callable[[T], Samples]


def written(families: Iterable[Family[T]], things: Sequence[T]) -> Iterator[bytes]:
    """The metrics of many things, in pieces.

    Args:
        families: the metrics.
        things: all things, ``QueueStatus`` say.
    """
    for family in families:
        yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n".encode()
        for start in range(0, len(things), SLICE):
            samples = [sample for thing in things[start : start + SLICE] for sample in family.samples(thing)]
            yield "".join([_line(family, values, value) for values, value in samples]).encode()


def _line(family: Family[T], values: tuple[str, ...], value: float) -> str:
    labels = ",".join([f'{name}="{_escaped(text)}"' for name, text in sorted(zip(family.labels, values, strict=True))])
    return f"{family.name}{{{labels}}} {float(value)!r}\n" if labels else f"{family.name} {float(value)!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
