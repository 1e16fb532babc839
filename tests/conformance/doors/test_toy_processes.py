"""The toy door passes the suite in a real broker, and in a cluster whose brokers do not own what its clients use."""

import base64
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.testing.door_suite import PASSWORD, SETTINGS, DoorClient, DoorSuite
from tests.acceptance.cluster.running_cluster import PATIENCE, RunningCluster, cluster_store
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.conformance.doors.toy_client import Sockets
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

TOY = [sys.executable, "-m", "tests.conformance.doors.toy_process"]
ADMIN = SETTINGS[SETTINGS.index("[[users]]") : SETTINGS.index("[[rules]]")].replace(
    'name = "user"', 'name = "admin"\nroles = ["administrator"]'
)


def written(directory: Path) -> str:
    """A file with the settings of the suite, and an administrator besides."""
    file = directory / "quire.toml"
    file.write_text(SETTINGS + ADMIN)
    return str(file)


class ToyBroker(BrokerProcess):
    """A broker by itself."""

    def start(self, *flags: str) -> None:
        self._run([*TOY, "broker", "start", "--http", "127.0.0.1:0"], *flags)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyBroker]:
    directory = tmp_path_factory.mktemp("alone")
    broker = ToyBroker(directory)
    broker.start("--config", written(directory))
    try:
        broker.port()
        yield broker
        broker.stop()
        assert "Traceback" not in broker.log
    finally:
        broker.kill()


class TestAlone(DoorSuite):
    @pytest.fixture(autouse=True)
    def broker(self, alone: ToyBroker) -> None:
        self.address = ("127.0.0.1", alone.port())

    def start(self, settings: Path) -> None:
        self.sockets = Sockets()

    def stop(self) -> None:
        self.sockets.close()

    def connect(self, password: str = PASSWORD) -> DoorClient:
        return self.sockets.client(self.address, password)


class ToyCluster(RunningCluster):
    """A cluster whose operator logs in."""

    def call(self, broker: str, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        login = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
        headers = {"authorization": f"Basic {login}"}
        request = urllib.request.Request(f"{self.brokers[broker].http}/api/v1{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def cluster(postgresql_server: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    names, file = ("athens", "berlin", "corinth"), written(directory)
    flags = {name: ["--config", file] for name in names}
    store = cluster_store(postgresql_server, directory)
    cluster = ToyCluster(directory, store, {"CLUSTER__SHARDS": "3"}, flags, TOY)
    try:
        cluster.start(*names)
        cluster.wait_until_even()
        yield cluster
        cluster.stop()
        assert "Traceback" not in cluster.log
    finally:
        cluster.kill()


class TestInACluster(DoorSuite):
    """All clients are connected to one broker, and all destinations are at the two others."""

    @pytest.fixture(autouse=True)
    def broker(self, cluster: ToyCluster) -> None:
        self.cluster = cluster

    def start(self, settings: Path) -> None:
        self.sockets = Sockets()

    def stop(self) -> None:
        self.sockets.close()

    def connect(self, password: str = PASSWORD) -> DoorClient:
        return self.sockets.client(self.cluster.brokers["athens"].stomp, password)

    def place(self, prefix: str = "") -> str:
        while True:
            place = super().place(prefix)
            shard = self.cluster.shard_of(place.removeprefix("/queue/"))
            if self.cluster.owners()[shard] != "athens":
                return place
