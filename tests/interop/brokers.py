"""The brokers that the Java programs talk to: Quire, and ActiveMQ to compare with."""

import contextlib
import random
import socket
import subprocess
from pathlib import Path
from typing import IO, Protocol

from tests.acceptance.cluster.running_cluster import RunningCluster, cluster_store
from tests.acceptance.crash.broker_process import START_SECONDS, BrokerProcess
from tests.interop.java_build import HERE, class_path
from tests.postgresql_server import PostgresqlServer

JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
"""A Java machine for short runs beside others."""


class Broker(Protocol):
    """A broker in a process of its own, on one port and one store for all its starts."""

    kind: str  # as the scenarios name it
    address: str  # HOST:PORT of its OpenWire listener; those of a cluster with commas between them

    @property
    def running(self) -> bool:
        """Whether there is a process."""

    def start(self) -> None:
        """Start it, and wait until it listens."""

    def stop(self) -> None:
        """End it with SIGTERM."""

    def kill(self) -> None:
        """End it with SIGKILL. One that was not started, or has ended, stays as it is."""


class Quire:
    """A Quire broker."""

    def __init__(self, directory: Path) -> None:
        self.kind = "quire"
        self.address = _free_address()
        self.process = BrokerProcess(directory)
        self._started = False

    @property
    def running(self) -> bool:
        return self._started and self.process.process.poll() is None

    def start(self) -> None:
        self.process.start("--openwire", self.address, "--config", str(HERE / "quire.toml"))
        self._started = True
        self.process.port()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


class QuireCluster:
    """Two Quire brokers as one, with the database that they share. All are killed, stopped and started together."""

    def __init__(self, server: PostgresqlServer, directory: Path) -> None:
        self.kind = "quire"
        addresses = {name: _free_address() for name in ("athens", "berlin")}
        flags = {name: ["--openwire", addresses[name], "--config", str(HERE / "quire.toml")] for name in addresses}
        self.address = ",".join(addresses.values())
        self.names = list(addresses)
        self._cluster = RunningCluster(directory, cluster_store(server, directory), {}, flags)
        self._lost: dict[int, int] = {}  # the epochs of shards whose processes have ended

    @property
    def running(self) -> bool:
        return len(self._cluster.living) == len(self.names)

    def start(self) -> None:
        living = [broker.name for broker in self._cluster.living]
        self._cluster.start(*[name for name in self.names if name not in living])
        self._cluster.wait_for_new_owners(self._lost)
        self._cluster.wait_until_even()
        self._lost = self._cluster.epochs()

    def stop(self) -> None:
        self._cluster.stop()

    def kill(self) -> None:
        self._cluster.kill()

    def kill_one(self, name: str) -> None:
        """End one of the brokers with SIGKILL; ``start`` starts it again."""
        owners = self._cluster.owners()
        self._lost = {shard: epoch for shard, epoch in self._cluster.epochs().items() if owners[shard] == name}
        self._cluster.brokers[name].kill()


class ActiveMq:
    """An ActiveMQ broker."""

    def __init__(self, directory: Path, line: int) -> None:
        self.kind = f"activemq{line}"
        self.address = _free_address()
        self._class_path = class_path(f"broker{line}", "peer")
        self._directory = directory  # for its data and its log
        self._process: subprocess.Popen[str] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        command = [*JAVA, "-cp", self._class_path, "Peer", str(self._directory / "data"), port]
        log_path = self._directory / "activemq.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._output.readline() == "ready\n", f"ActiveMQ does not start:\n{log_path.read_text()}"

    @property
    def _output(self) -> IO[str]:
        assert self._process
        assert self._process.stdout
        return self._process.stdout

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._wait()

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._wait()

    def _wait(self) -> None:
        assert self._process
        self._process.wait(START_SECONDS)
        self._output.close()


def _free_address() -> str:
    """A port below those of outgoing connections.

    A client that connects again and again to a port of these, while the broker is away, may be given that port itself.
    """
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return f"127.0.0.1:{port}"
    raise AssertionError("no free port found")
