"""A Kafka broker to compare with, and Spark's source for it, both from Maven Central."""

import socket
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.rig import START_LIMIT
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.settings import split_address
from tests.interop.java_build import jars_of, require_tools

_POMS = Path(__file__).parent / "poms"

_PAUSE = 0.1

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
    """The jars of Spark's source for Kafka, as ``spark.jars`` takes them.

    Raises:
        NoJavaTools: they cannot be had here.
    """
    require_tools()
    return ",".join(sorted(map(str, jars_of(_POMS / "source" / "pom.xml").glob("*.jar"))))


class KafkaBroker:
    """A broker with one node, which makes topics when they are written to.

    Args:
        directory: where its data and its log are.
        addresses: for clients, and for itself; free ports.
        partitions: how many a topic has.

    Attributes:
        address: where clients reach it.
    """

    def __init__(self, directory: Path, addresses: tuple[str, str], partitions: int) -> None:
        require_tools()
        self._jars = jars_of(_POMS / "broker" / "pom.xml")
        self.address, controller = addresses
        self._directory = directory
        self._log = directory / "kafka.log"
        self._settings = directory / "server.properties"
        self._settings.write_text(
            _SETTINGS.format(broker=self.address, controller=controller, directory=directory, partitions=partitions)
        )

    @property
    def pid(self) -> int:
        """Its process id."""
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
            time.sleep(_PAUSE)

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
