"""What reading costs the broker: the scenario ``confirm`` alone, and beside a reader that has the other cores.

The broker has the first core. The clients of ``confirm``, the bulk server and Spark share the others, and of these only
the clients have the usual priority: so what is measured is what reading takes from the broker, not from its clients.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.load import no_tick
from benchmarks.pipeline.processors import tree
from benchmarks.pipeline.reading import Reading
from benchmarks.pipeline.speed import STREAM, broker_with
from benchmarks.pipeline.stream_load import fill
from benchmarks.rig import OwnBroker
from benchmarks.scaling.meters import pin
from quire.cli.perf.load import SCENARIOS, Load
from quire.cli.perf.measure import measure

MANY_RUNS = 1000
"""So often the reader reads the stream at the most: it is ended before."""


_PAUSE = 0.05


class Beside(NamedTuple):
    """Messages a second of ``confirm``, in turn alone and beside a reader."""

    alone: list[float]
    beside: list[float]


def measure_confirm(directory: Path, messages: int, stored: int, rounds: int, say: Callable[[str], None]) -> Beside:
    """Measure ``confirm`` with so many messages, alone and beside a reader of a stream with ``stored`` messages."""
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {first})
    found = Beside([], [])
    with broker_with(directory, 1) as broker:
        pin(broker.pid, {first})
        say(f"sending {stored:,} messages")
        fill(broker, STREAM, stored, 1024)
        _confirm(broker, messages)
        for number in range(rounds):
            found.alone.append(_confirm(broker, messages))
            say(f"round {number + 1}: alone {found.alone[-1]:,.0f}/s")
            with _reader(broker, directory, set(others) or {first}):
                found.beside.append(_confirm(broker, messages))
            say(f"round {number + 1}: beside a reader {found.beside[-1]:,.0f}/s")
    return found


def _confirm(broker: OwnBroker, messages: int) -> float:
    return measure(broker.target, Load(messages, **SCENARIOS["confirm"].changes), no_tick).messages_per_s


@contextmanager
def _reader(broker: OwnBroker, directory: Path, cores: set[int]) -> Iterator[None]:
    """A reader that reads all the time, with the lowest priority, and not where the broker is."""
    given = {"broker.url": broker.api.url, "subscribe": STREAM, "startingOffsets": "earliest"}
    reading = Reading("quire", given, "noop", MANY_RUNS, len(cores), str(directory), broker.pid)
    command = ["nice", "-n", "19", sys.executable, "-m", "benchmarks.pipeline.reading"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(reading))
        process.stdin.close()
        while not (bulk := tree(broker.pid).others):  # the bulk server does not run yet
            time.sleep(_PAUSE)
        for pid in bulk:
            pin(pid, cores)
        process.stdout.readline()  # it has read the stream once: Java is warm
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
