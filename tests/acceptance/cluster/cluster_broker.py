"""A broker of a cluster, in processes of its own."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.acceptance.crash.broker_process import QUIRE, START_SECONDS, BrokerProcess


class ClusterBroker(BrokerProcess):
    """A broker of a cluster.

    Args:
        directory: where its data and its log are.
        name: its name in the cluster.
        store: the database of the cluster.
        settings: more of them, by the names of their environment variables without ``QUIRE_``.
    """

    def __init__(self, directory: Path, name: str, store: str, settings: dict[str, str] | None = None) -> None:
        mine = {"CLUSTER__NAME": name, "CLUSTER__STORE": store, "LOG__FORMAT": "json"}
        super().__init__(directory, store, mine | (settings or {}))
        self.name = name

    def start(self, *flags: str) -> None:
        """Start it as a user does; its processes have a group of their own."""
        addresses = ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command = [*QUIRE, "cluster", "start", *addresses, "--data", str(self.data), *flags]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    def kill(self) -> None:
        """End all its processes with SIGKILL, as a machine does that is lost."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(START_SECONDS)
