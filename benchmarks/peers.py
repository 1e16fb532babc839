"""Other brokers from Debian's packages, started beside Quire with their messages synced to disk."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from quire.cli.perf.load import Link, Target
from quire.errors import BrokerUnreachable

START_LIMIT = 120.0
"""How long a broker may take to start, in seconds."""
STOP_LIMIT = 20.0
"""How long it may take to stop before it is killed, in seconds."""

_JARS = Path("/usr/share/activemq/lib")
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Peer:
    """A broker to compare with. As a context manager it runs, and everything it started ends with it."""

    name: ClassVar[str]
    packages: ClassVar[str]
    has_tls: ClassVar[bool] = False

    def __init__(self, directory: Path, certificates: Path | None = None) -> None:
        self.directory = directory  # where it keeps its data, its settings and its log
        self.certificates = certificates  # where ``server.pem`` and ``server.key`` are, for TLS; None for none
        self.target = Target("127.0.0.1", free_port(), "guest", "guest", tls=certificates is not None)  # its STOMP port
        self._processes: list[subprocess.Popen[bytes]] = []

    @classmethod
    def is_installed(cls) -> bool:
        raise NotImplementedError

    def launch(self) -> None:
        raise NotImplementedError

    @classmethod
    def version(cls) -> str:
        command = ["dpkg-query", "--show", "--showformat", "${Version}", cls.packages.split()[0]]
        return f"{cls.name} {subprocess.run(command, capture_output=True, text=True, check=True).stdout}"

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        with (self.directory / "output.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the comparison, which then ends its peers in order.
                start_new_session=True,
            )
        self._processes.append(process)

    def __enter__(self) -> Self:
        try:
            self.launch()
            self._wait_until_it_answers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                Link(self.target).close()
                return
            except BrokerUnreachable:
                dead = any(process.poll() is not None for process in self._processes)
                if dead or time.monotonic() > deadline:
                    log = (self.directory / "output.log").read_text(errors="replace")
                    raise SystemExit(f"{self.name} did not start:\n{log[-2000:]}") from None
            time.sleep(0.2)

    def _end(self) -> None:
        for process in reversed(self._processes):
            _signal(process, signal.SIGTERM)
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        self._processes.clear()


class RabbitMq(Peer):
    """RabbitMQ with its STOMP plugin. It confirms a persistent message when it is synced."""

    name = "RabbitMQ"
    packages = "rabbitmq-server"
    has_tls = True

    @classmethod
    def is_installed(cls) -> bool:
        return _RABBITMQ.exists() and shutil.which("epmd") is not None

    def launch(self) -> None:
        """Run a port mapper of its own, which Erlang would leave behind otherwise, and the server."""
        mapper_port = str(free_port())
        address = f"{self.target.host}:{self.target.port}"
        lines = ["listeners.tcp = none"]
        if self.certificates is None:
            lines.append(f"stomp.listeners.tcp.1 = {address}")
        else:
            lines += ["stomp.listeners.tcp = none", f"stomp.listeners.ssl.1 = {address}"]
            lines += [f"ssl_options.certfile = {self.certificates}/server.pem"]
            lines += [f"ssl_options.keyfile = {self.certificates}/server.key"]
        (self.directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.directory / "plugins").write_text("[rabbitmq_stomp].\n")
        environment = {
            "ERL_EPMD_PORT": mapper_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "HOME": str(self.directory),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_NODENAME": f"compare{os.getpid()}@localhost",
        }
        self.run("epmd", "-port", mapper_port, "-address", "127.0.0.1")
        self.run(str(_RABBITMQ), environment=environment)


class ActiveMq(Peer):
    """ActiveMQ Classic with KahaDB, which syncs before it confirms."""

    name = "ActiveMQ"
    packages = "activemq libactivemq-java"

    _MAIN = """\
import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

public class Compared {
    public static void main(String[] arguments) throws Exception {
        KahaDBPersistenceAdapter messages = new KahaDBPersistenceAdapter();
        messages.setDirectory(new File(arguments[0], "messages"));
        BrokerService compared = new BrokerService();
        compared.setDataDirectory(arguments[0]);
        compared.setUseJmx(false);
        compared.setPersistenceAdapter(messages);
        compared.addConnector("stomp+nio://127.0.0.1:" + arguments[1]);
        compared.start();
        compared.waitUntilStopped();
    }
}
"""

    @classmethod
    def is_installed(cls) -> bool:
        return any(_JARS.glob("activemq-*.jar")) and shutil.which("java") is not None

    def launch(self) -> None:
        source = self.directory / "Compared.java"
        source.write_text(self._MAIN)
        jars = [str(jar) for jar in sorted(_JARS.glob("**/*.jar"))]
        data, port = str(self.directory / "data"), str(self.target.port)
        self.run("java", "-Xmx1G", "-cp", os.pathsep.join(jars), str(source), data, port)


PEERS: dict[str, type[Peer]] = {"rabbitmq": RabbitMq, "activemq": ActiveMq}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)
