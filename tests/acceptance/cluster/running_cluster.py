"""A cluster of brokers in processes of their own, on one PostgreSQL server."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

from benchmarks.peers import free_port
from tests.acceptance.crash.broker_process import QUIRE, START_SECONDS, BrokerProcess
from tests.acceptance.crash.load import Place
from tests.postgresql_server import PostgresqlServer


class ClusterBroker(BrokerProcess):
    """A broker of a cluster, on ports that stay the same."""

    start_seconds = 2 * START_SECONDS  # its processes begin one by one, beside those of the others

    def __init__(
        self, directory: Path, name: str, store: str, settings: dict[str, str] | None = None,
        program: Sequence[str] = QUIRE,
    ) -> None:  # fmt: skip
        mine = {"CLUSTER__NAME": name, "CLUSTER__STORE": store, "LOG__FORMAT": "json"}
        super().__init__(directory, store, mine | (settings or {}))
        self.name = name  # its name in the cluster
        self.is_suspended = False  # whether its processes stand still
        self.stomp = ("127.0.0.1", free_port())  # where clients of STOMP find it
        self.openwire_address, self._http_address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self._program = program  # what runs its command line

    def start(self, *flags: str) -> None:
        stomp = f"127.0.0.1:{self.stomp[1]}"
        addresses = ["--stomp", stomp, "--openwire", self.openwire_address, "--http", self._http_address]
        command = [*self._program, "cluster", "start", *addresses, "--data", str(self.data), *flags]
        self.is_suspended = False
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def suspend(self) -> None:
        self.is_suspended = True
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)
        self.is_suspended = False

    def kill(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(START_SECONDS)


PATIENCE = 120.0
"""How long the start of all brokers may take on a busy machine, in seconds."""


PAUSE = 0.05
"""How long a client rests after it has sent, in seconds: all share the machine with the brokers."""


class AnyBroker(Place):
    """Where clients connect: at a random broker of those that live."""

    def __init__(self, ports: Callable[[], list[int]], random: Random) -> None:
        super().__init__()
        self.pause = PAUSE
        self._ports = ports  # gives the STOMP ports of the living brokers
        self._random = random

    @property
    def hosts(self) -> list[tuple[str, int]]:
        ports = self._ports()
        return [("127.0.0.1", self._random.choice(ports))] if ports else []


class RunningCluster:
    """Some brokers."""

    def __init__(
        self, directory: Path, store: str, settings: dict[str, str], flags: Mapping[str, Sequence[str]] | None = None,
        program: Sequence[str] = QUIRE,
    ) -> None:  # fmt: skip
        self.brokers: dict[str, ClusterBroker] = {}  # those that were added or started
        self.store = store  # the database of the cluster
        self._program = program  # what runs their command line
        self._directory = directory  # where their data and logs are
        self._settings = settings  # of all brokers, by the names of their environment variables without ``QUIRE_``
        self._flags = flags or {}

    def start(self, *names: str) -> None:
        self.add(*names)
        for name in names:
            self.brokers[name].start(*self._flags.get(name, ()))
        for name in names:
            self.brokers[name].port()

    def add(self, *names: str) -> None:
        for name in names:
            if name not in self.brokers:
                (self._directory / name).mkdir()
                self.brokers[name] = ClusterBroker(
                    self._directory / name, name, self.store, self._settings, self._program
                )
                self.brokers[name].log_path.touch()

    @property
    def living(self) -> list[ClusterBroker]:
        return [broker for broker in self.brokers.values() if broker.is_running and not broker.is_suspended]

    def call(self, broker: str, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.brokers[broker].http}/api/v1{path}", content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            return error.code, json.loads(error.read())

    def shard_of(self, queue: str) -> int:
        """The shard of a queue, as the first living broker says."""
        began = time.monotonic()
        while (answer := self._asked(f"/cluster/places/queue/{queue}"))[0] == 503:  # its process is starting
            assert time.monotonic() - began < PATIENCE, f"{answer}\n{self.log}"
            time.sleep(0.1)
        assert answer[0] == 200, answer
        return int(answer[1]["shard"])

    def owners(self) -> dict[int, str | None]:
        return {shard["shard"]: shard["broker"] for shard in self._shards()}

    def epochs(self) -> dict[int, int]:
        return {shard["shard"]: shard["epoch"] for shard in self._shards()}

    def _shards(self) -> list[dict[str, Any]]:
        status, cluster = self._asked("/cluster")
        assert status == 200, cluster
        shards: list[dict[str, Any]] = cluster["shards"]
        return shards

    def _asked(self, path: str) -> tuple[int, Any]:
        """What a broker says; it is asked again if the process that took the request ends."""
        while True:
            with suppress(ConnectionError):
                return self.call(self.living[0].name, path)

    def wait_for_owners(self, wanted: Callable[[list[str | None]], bool], patience: float = PATIENCE) -> float:
        began = time.monotonic()
        while not wanted(list((now := self.owners()).values())):
            assert time.monotonic() - began < patience, f"the shards are at {now}\n{self.log}"
            time.sleep(0.05)
        return time.monotonic() - began

    def wait_until_even(self) -> float:
        names = {broker.name for broker in self.living}

        def is_even(owners: list[str | None]) -> bool:
            counts = [owners.count(name) for name in names]
            return set(owners) == names and max(counts) - min(counts) <= 1

        return self.wait_for_owners(is_even)

    def wait_for_new_owners(self, before: dict[int, int]) -> None:
        """Wait until every shard has another owner than one of these epochs: all processes were started again."""
        began = time.monotonic()
        while any([epoch <= before.get(shard, 0) for shard, epoch in self.epochs().items()]):
            assert time.monotonic() - began < PATIENCE, f"the shards have no new owners\n{self.log}"
            time.sleep(0.05)

    def stop(self) -> None:
        for broker in self.living:
            broker.process.terminate()
        for broker in self.brokers.values():
            assert broker.wait() == 0, f"a broker did not stop well:\n{self.log}"

    @property
    def log(self) -> str:
        return "\n".join([f"{name}:\n{broker.log[-3000:]}" for name, broker in self.brokers.items()])

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


def cluster_store(server: PostgresqlServer, directory: Path) -> str:
    database = server.schema_of(directory)
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {database}")
    return f"postgresql://quire@/{database}?host={quote(str(server.directory), safe='')}"


@contextmanager
def running_cluster(
    server: PostgresqlServer, directory: Path, program: Sequence[str] = QUIRE, **settings: str
) -> Iterator[RunningCluster]:
    """A cluster on a database of its own; no broker is started. At the end all are killed."""
    cluster = RunningCluster(directory, cluster_store(server, directory), settings, program=program)
    try:
        yield cluster
    finally:
        cluster.kill()
