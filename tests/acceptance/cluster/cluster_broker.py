"""A broker of a cluster, in processes of its own."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.peers import free_port
from tests.acceptance.crash.broker_process import QUIRE, START_SECONDS, BrokerProcess


class ClusterBroker(BrokerProcess):
    """A broker of a cluster, on ports that stay the same.

    Args:
        directory: where its data and its log are.
        name: its name in the cluster.
        store: the database of the cluster.
        settings: more of them, by the names of their environment variables without ``QUIRE_``.
        program: what runs its command line.

    Attributes:
        stomp: where clients of STOMP find it.
        openwire_address: where clients of OpenWire do, as HOST:PORT.
        is_suspended: whether its processes stand still.
    """

    start_seconds = 2 * START_SECONDS  # its processes begin one by one, beside those of the others

    def __init__(
        self, directory: Path, name: str, store: str, settings: dict[str, str] | None = None,
        program: Sequence[str] = QUIRE,
    ) -> None:  # fmt: skip
        mine = {"CLUSTER__NAME": name, "CLUSTER__STORE": store, "LOG__FORMAT": "json"}
        super().__init__(directory, store, mine | (settings or {}))
        self.name = name
        self.is_suspended = False
        self.stomp = ("127.0.0.1", free_port())
        self.openwire_address, self._http_address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self._program = program

    def start(self, *flags: str) -> None:
        """Start it as a user does; its processes have a group of their own."""
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
        """Whether there is a process; suspended or not."""
        return self._process is not None and self._process.poll() is None

    def suspend(self) -> None:
        """Have all its processes stand still, as those of a machine that sleeps."""
        self.is_suspended = True
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Have them go on."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.is_suspended = False

    def kill(self) -> None:
        """End all its processes with SIGKILL, as a machine does that is lost."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(START_SECONDS)
