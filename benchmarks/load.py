"""Loads that ``quire perf run`` has no use for: numbered messages, streams, sending alone and taking alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import Crew, Tick, span

NUMBER_DIGITS = 12
STREAM_BATCH = 32
"""How many messages of a stream share a receipt, and how many share an acknowledgement."""
GROUP = "perf"
"""The consumer group that takes a stream's load."""


@dataclass(frozen=True, slots=True)
class NumberedLoad(Load):
    """A load of one producer whose bodies begin with their numbers, from 0, in ``NUMBER_DIGITS`` digits."""

    headers: str = ""  # more header lines of every message, each with its newline
    turns: tuple[str, int] = ("", 1)  # a header and how many values it takes in turn: ``("partition", 4)``

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        """SEND frames, as ``Load.frames``; they tell no time."""
        head = f"SEND\ndestination:{self.destination}\ncontent-length:{self.size}\n"
        start = f"{head}persistent:{'true' if self.persistent else 'false'}\n{self.headers}".encode()
        filler = b"x" * (self.size - NUMBER_DIGITS)
        name, values = self.turns
        for number in range(first, first + count):
            turn = b"%b:%d\n" % (name.encode(), number % values) if name else b""
            asks = (self.receipts and (number + 1) % self.batch == 0) or number == last
            receipt = b"receipt:%d\n" % number if asks else b""
            yield b"%b%b%b\n%0*d%b\0" % (start, turn, receipt, NUMBER_DIGITS, number, filler)


def stream_load(messages: int, size: int = 1024, **changes: Any) -> Load:
    given = {
        "kind": "stream", "batch": STREAM_BATCH, "ack": "client", "ack_every": STREAM_BATCH,
        "subscribe": f"group:{GROUP}\nstart:earliest\n",
    }  # fmt: skip
    return Load(messages, size, **{**given, **changes})


class Taken(NamedTuple):
    """How many messages were taken, and how many per second.

    As acknowledgements go out in bulk, it may be a few more than the load has.
    """

    messages: int
    per_s: float


def no_tick(_counts: object) -> None:
    """For loads that are not watched."""


def send(target: Target, load: Load, tick: Tick = no_tick) -> float:
    with Crew(target, load, tick) as crew:
        crew.start_producers()
        crew.finish()
        return load.messages / span(crew.producers, crew.producers)


def take(target: Target, load: Load, tick: Tick = no_tick) -> Taken:
    with Crew(target, load, tick) as crew:
        crew.start_consumers()
        crew.finish()
        received = crew.counts().received
        return Taken(received, received / span(crew.consumers, crew.consumers))
