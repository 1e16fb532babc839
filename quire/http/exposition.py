"""Prometheus' text format for what there may be very many of, written a piece at a time.

Metrics of the broker as a whole are few: those are written by Prometheus' own library (``quire.http.metrics``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

SLICE = 200
"""How many lines are written at once, or a few more: some milliseconds."""

T = TypeVar("T")

Samples = Iterable[tuple[Mapping[str, str], float]]
"""Labels and a value, of each."""


class Family(NamedTuple, Generic[T]):
    """A metric of many things of a kind.

    Attributes:
        name: its name; that of a counter ends with ``_total``.
        kind: what Prometheus calls it.
        text: what it means.
        samples: those of one thing.
    """

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    samples: Callable[[T], Samples]


def written(families: Iterable[Family[T]], things: Sequence[T]) -> Iterator[bytes]:
    """The metrics of many things, in pieces."""
    for family in families:
        yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n".encode()
        for start in range(0, len(things), SLICE):
            samples = [sample for thing in things[start : start + SLICE] for sample in family.samples(thing)]
            yield "".join([_line(family.name, labels, value) for labels, value in samples]).encode()


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join([f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items())])
    return f"{name}{{{pairs}}} {float(value)!r}\n" if pairs else f"{name} {float(value)!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
