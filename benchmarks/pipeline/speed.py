"""Reads a stream in each way that is compared, Kafka's topic with the same messages, and audits of the ledger."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from benchmarks.load import NUMBER_DIGITS, no_tick, send
from benchmarks.pipeline.reading import Reading, Run, tree
from benchmarks.rig import START_LIMIT, STORES, OwnBroker
from benchmarks.scaling.bench import pin
from quire.cli.perf.load import SCENARIOS, Load
from quire.cli.perf.measure import measure
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.settings import split_address
from tests.interop.java_build import jars_of, require_tools

_POMS = Path(__file__).parent / "poms"

_START_PAUSE = 0.1

_JAVA = ["java", "-Xmx1g", "-Xms1g", "-XX:+UseG1GC"]

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{broker},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{broker}
controller.listener.names=CONTROLLER
log.dirs={directory}/log
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


def source_jars() -> str:
    require_tools()
    return ",".join(sorted(map(str, jars_of(_POMS / "source" / "pom.xml").glob("*.jar"))))


class KafkaBroker:
    """A broker with one node, which makes topics when they are written to."""

    def __init__(self, directory: Path, addresses: tuple[str, str], partitions: int) -> None:
        require_tools()
        self._jars = jars_of(_POMS / "broker" / "pom.xml")
        self.address, controller = addresses
        self._directory = directory  # where its data and its log are
        self._log = directory / "kafka.log"
        self._settings = directory / "server.properties"
        self._settings.write_text(
            _SETTINGS.format(broker=self.address, controller=controller, directory=directory, partitions=partitions)
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        settings = str(self._settings)
        made = self._java("kafka.tools.StorageTool", "format", "-t", str(uuid.uuid4()), "-c", settings)
        if made.wait():
            raise BrokerUnreachable(f"Kafka makes no storage:\n{self._log.read_text()[-2000:]}")
        self._process = self._java("kafka.Kafka", settings)
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def _wait(self) -> None:
        deadline = SystemClock().monotonic() + START_LIMIT
        while True:
            with suppress(OSError), socket.create_connection(split_address(self.address), 1):
                return
            if self._process.poll() is not None or SystemClock().monotonic() > deadline:
                raise BrokerUnreachable(f"Kafka does not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(_START_PAUSE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _java(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [*_JAVA, "-cp", f"{self._jars}/*", program, *arguments]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


PARTITIONS = 4
"""Of the stream, and of Kafka's topic."""

_NOISE = 1 << 24


@dataclass(frozen=True, slots=True)
class RandomLoad(Load):
    """Messages for a stream, to its partitions in turn; bodies begin with their numbers, from 0."""

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        head = f"SEND\ndestination:{self.destination}\ncontent-length:{self.size}\npersistent:true\n".encode()
        filler = _noise()
        room = len(filler) - self.size
        for number in range(first, first + count):
            at = number * self.size % room
            receipt = b"receipt:%d\n" % number if (number + 1) % self.batch == 0 or number == last else b""
            body = b"%0*d%b" % (NUMBER_DIGITS, number, filler[at : at + self.size - NUMBER_DIGITS])
            yield b"%bpartition:%d\nkey:%d\n%b\n%b\0" % (head, number % PARTITIONS, number % 1000, receipt, body)


@cache
def _noise() -> bytes:
    return Random(1).randbytes(_NOISE)


def fill(broker: OwnBroker, stream: str, messages: int, size: int) -> float:
    broker.api.call("PUT", f"/streams/{stream}", {"partitions": PARTITIONS})
    return send(broker.target, RandomLoad(messages, size, batch=128, kind="stream", queue=stream), no_tick)


STREAM = "events"

STORE = "store"
"""Reads of the store itself, in the place of a number of readers."""


class Measured(NamedTuple):
    source: str  # ``quire`` or ``kafka``
    sink: str
    readers: str  # processes of the bulk server, ``store``, or nothing
    runs: list[Run]


class Plan(NamedTuple):
    messages: int
    size: int
    readers: tuple[int, ...]
    sinks: tuple[str, ...]
    with_kafka: bool
    runs: int
    cores: int


def measure_reads(directory: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Measured]:
    """Measure what a plan says, in a directory on a disk with room for all messages twice."""
    with broker_with(directory, 1) as broker:
        say(f"sending {plan.messages:,} messages")
        rate = fill(broker, STREAM, plan.messages, plan.size)
        say(f"sent at {rate:,.0f}/s")
    for readers in plan.readers:
        with broker_with(directory, readers) as broker:
            for sink in plan.sinks:
                say(f"quire to {sink}, {readers} readers")
                yield Measured("quire", sink, str(readers), read(_of_quire(broker, directory, plan, sink)))
    with broker_with(directory, 1) as broker:
        for sink in plan.sinks:
            say(f"quire to {sink}, from the store")
            reading = _of_quire(broker, directory, plan, sink)
            options = reading.options | {"store.url": STORES["lmdb"] % directory}
            yield Measured("quire", sink, STORE, read(msgspec.structs.replace(reading, options=options)))
    if plan.with_kafka:
        yield from _measure_kafka(directory, plan, say)


def _measure_kafka(directory: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Measured]:
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
            read(copying)
        shutil.rmtree(directory / "store")  # there may be no room for both and for Parquet files
        for sink in plan.sinks:
            say(f"kafka to {sink}")
            given = place | {"subscribe": STREAM, "startingOffsets": "earliest"}
            reading = Reading("kafka", given, sink, plan.runs, plan.cores, str(directory), kafka.pid, jars)
            yield Measured("kafka", sink, "", read(reading))


def _of_quire(broker: OwnBroker, directory: Path, plan: Plan, sink: str) -> Reading:
    given = {"broker.url": broker.api.url, "subscribe": STREAM, "startingOffsets": "earliest"}
    return Reading("quire", given, sink, plan.runs, plan.cores, str(directory), broker.pid)


def read(reading: Reading) -> list[Run]:
    command = [sys.executable, "-m", "benchmarks.pipeline.reading"]
    done = subprocess.run(command, input=msgspec.json.encode(reading), stdout=subprocess.PIPE, check=True)
    return [msgspec.json.decode(line, type=Run) for line in done.stdout.splitlines()]


def broker_with(directory: Path, readers: int) -> OwnBroker:
    return OwnBroker(directory, {"store": "lmdb"}, {"QUIRE_BULK__PROCESSES": str(readers)})


def _free_addresses() -> tuple[str, str]:
    with ExitStack() as taken:
        found = [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
    return f"127.0.0.1:{found[0]}", f"127.0.0.1:{found[1]}"


_AUDIT = "from quire.cli.main import main; main()"
_NOTHING = "from quire.spark import session; session().range(10).count()"


class Audited(NamedTuple):
    messages: int
    seconds: float


def measure_audit(directory: Path, messages: int, say: Callable[[str], None]) -> Audited:
    """Send and receive so many messages with ``confirm`` while the ledger is on, and audit it."""
    with OwnBroker(directory, {"store": "lmdb"}, {"QUIRE_POLICY__LEDGER": "true"}) as broker:
        say(f"{messages:,} messages are sent and received")
        measure(broker.target, Load(messages, **SCENARIOS["confirm"].changes), no_tick)
        say("the ledger is audited")
        command = (_AUDIT, "pipeline", "run", "audit", "--url", broker.api.url, "--drained", "--output", "json")
        seconds, output = _timed(*command)
    found = json.loads(output)
    if (found["verdict"], found["total"]["acknowledged"]) != ("ok", messages):
        raise RuntimeError(f"the audit says {found}")
    return Audited(messages, seconds)


def measure_nothing() -> Audited:
    """Let Spark start and count ten rows: the time in which no audit can be done."""
    return Audited(0, _timed(_NOTHING)[0])


def _timed(*program: str) -> tuple[float, bytes]:
    clock = SystemClock()
    began = clock.monotonic()
    done = subprocess.run([sys.executable, "-c", *program], stdout=subprocess.PIPE, check=True)
    return clock.monotonic() - began, done.stdout


MANY_RUNS = 1000
"""So often the reader reads the stream at the most: it is ended before."""


_PAUSE = 0.05


class Beside(NamedTuple):
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
