"""Reads a stream in each way that is compared, and Kafka's topic with the same messages."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.pipeline.kafka import KafkaBroker, source_jars
from benchmarks.pipeline.reading import Reading, Run
from benchmarks.pipeline.stream_load import PARTITIONS, fill
from benchmarks.rig import STORES, OwnBroker

STREAM = "events"

STORE = "store"
"""Reads of the store itself, in the place of a number of readers."""


class Measured(NamedTuple):
    """One way to read."""

    source: str  # ``quire`` or ``kafka``
    sink: str
    readers: str  # processes of the bulk server, ``store``, or nothing
    runs: list[Run]


class Plan(NamedTuple):
    """What is measured."""

    messages: int
    size: int
    readers: tuple[int, ...]
    sinks: tuple[str, ...]
    with_kafka: bool
    runs: int
    cores: int


def measure(directory: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Measured]:
    """Measure what a plan says, in a directory on a disk with room for all messages twice."""
    with broker_with(directory, 1) as broker:
        say(f"sending {plan.messages:,} messages")
        rate = fill(broker, STREAM, plan.messages, plan.size)
        say(f"sent at {rate:,.0f}/s")
    for readers in plan.readers:
        with broker_with(directory, readers) as broker:
            for sink in plan.sinks:
                say(f"quire to {sink}, {readers} readers")
                yield Measured("quire", sink, str(readers), _read(_of_quire(broker, directory, plan, sink)))
    with broker_with(directory, 1) as broker:
        for sink in plan.sinks:
            say(f"quire to {sink}, from the store")
            reading = _of_quire(broker, directory, plan, sink)
            options = reading.options | {"store.url": STORES["lmdb"] % directory}
            yield Measured("quire", sink, STORE, _read(msgspec.structs.replace(reading, options=options)))
    if plan.with_kafka:
        yield from _measure_kafka(directory, plan, say)


def _measure_kafka(directory: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Measured]:
    """The same messages out of Kafka."""
    jars = source_jars()
    home = directory / "kafka"
    home.mkdir()
    with KafkaBroker(home, _free_addresses(), PARTITIONS) as kafka:
        place = {"kafka.bootstrap.servers": kafka.address}
        with broker_with(directory, 1) as broker:
            say("copying the messages to Kafka")
            given = {"broker.url": broker.api.url, "subscribe": STREAM}
            copying = Reading(
                "quire", given, "", 1, plan.cores, str(directory), kafka.pid, jars, place | {"topic": STREAM}
            )
            _read(copying)
        shutil.rmtree(directory / "store")  # there may be no room for both and for Parquet files
        for sink in plan.sinks:
            say(f"kafka to {sink}")
            given = place | {"subscribe": STREAM, "startingOffsets": "earliest"}
            reading = Reading("kafka", given, sink, plan.runs, plan.cores, str(directory), kafka.pid, jars)
            yield Measured("kafka", sink, "", _read(reading))


def _of_quire(broker: OwnBroker, directory: Path, plan: Plan, sink: str) -> Reading:
    given = {"broker.url": broker.api.url, "subscribe": STREAM, "startingOffsets": "earliest"}
    return Reading("quire", given, sink, plan.runs, plan.cores, str(directory), broker.pid)


def _read(reading: Reading) -> list[Run]:
    command = [sys.executable, "-m", "benchmarks.pipeline.reading"]
    done = subprocess.run(command, input=msgspec.json.encode(reading), stdout=subprocess.PIPE, check=True)
    return [msgspec.json.decode(line, type=Run) for line in done.stdout.splitlines()]


def broker_with(directory: Path, readers: int) -> OwnBroker:
    """A broker on the store of the directory, whose bulk server has so many processes."""
    return OwnBroker(directory, {"store": "lmdb"}, {"QUIRE_BULK__PROCESSES": str(readers)})


def _free_addresses() -> tuple[str, str]:
    with ExitStack() as taken:
        found = [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
    return f"127.0.0.1:{found[0]}", f"127.0.0.1:{found[1]}"
