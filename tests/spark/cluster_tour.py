"""All of ``docs/spark-cluster.md`` on one machine: ``python -m tests.spark.cluster_tour``.

A standalone master with two workers whose Python has no packages, a broker that takes TLS only and has users, the
archive of ``quire pipeline package``, then the source, the sink and each pipeline, submitted by the lines that the
command prints. At the end all that Spark has written is searched for secrets.
"""

import argparse
import base64
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.cli.pipeline import PIPELINES
from quire.clock import SystemClock
from quire.spark import pipelines
from tests.docs.pages import ROOT
from tests.spark import cluster_program
from tests.spark.processes import descendants
from tests.spark.running_broker import running_broker
from tests.spark.standalone_cluster import StandaloneCluster, bare_python

PASSWORD = "a password that no log may have"
RULES = ("queue://orders", "queue://copies", "queue://again", "stream://events", "stream://$quire.ledger")
"""What the user may read, write and create; and dead letters."""

DEAD_LETTERS = "ActiveMQ.DLQ"
CONSUMED, DEAD = 50, 7
_SETTINGS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # What runs for seconds is not worth a second compilation.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_QUIRE = [sys.executable, "-c", "from quire.cli.main import main; main()"]
_LIMIT = 900.0
"""How long one program may take on a busy machine, in seconds."""


class Tour:
    """A broker, a cluster, and what is submitted to it.

    Args:
        directory: for all files.
        rows: how many messages are written.
    """

    def __init__(self, directory: Path, rows: int) -> None:
        self._directory = directory
        self._rows = rows
        self._password, self._ca = directory / "password.txt", directory / "tls" / "ca.pem"
        self._data = directory / "data"
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "QUIRE_TLS_CA": str(self._ca)}
        self._seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Do all of it, and say what was seen."""
        self._password.write_text(f"{PASSWORD}\n")
        self._quire("tls", "make", self._ca.parent)
        package = json.loads(self._quire("--output", "json", "pipeline", "package", self._directory / "quire.zip"))
        settings = {
            "TLS__CERTIFICATE": f"{self._ca.parent}/server.pem", "TLS__KEY": f"{self._ca.parent}/server.key",
            "TLS__PLAIN": "nowhere", "SECURITY__ENABLED": "true", "POLICY__LEDGER": "true",
        }  # fmt: skip
        python = bare_python(self._directory / "bare")
        with (
            running_broker(self._directory, **settings) as broker,
            StandaloneCluster(self._directory, python=python) as cluster,
        ):
            url = broker.url.replace("http://", "https://")
            self._add_user()
            seen = self._visit(cluster, package["submit"], url)
        seen["secrets"] = [str(path.relative_to(self._directory)) for path in self._with(*self._secrets())]
        seen["event_logs"] = len(
            [path for path in self._with(b"SparkListenerSQLExecutionStart") if path.name[0] != "."]
        )
        return seen | {"seconds": self._seconds}

    def _visit(self, cluster: StandaloneCluster, lines: str, url: str) -> dict[str, Any]:
        options = {
            "broker.url": url, "user": "spark", "passwordFile": str(self._password), "tlsCa": str(self._ca),
        }  # fmt: skip
        program = Path(cluster_program.__file__)
        arguments = [json.dumps(options), str(self._directory / "files"), str(self._rows)]
        seen = {"program": self._submit(cluster, lines, program, arguments)}
        self._quire("receive", "orders", "--count", CONSUMED, "--ack", "--data", self._data)
        self._quire("send", DEAD_LETTERS, "--count", DEAD, "--data", self._data)
        login = ["--url", url, "--user", "spark", "--password-file", str(self._password), "--tls-ca", str(self._ca)]
        arguments_of: dict[str, list[str]] = {
            "archive": [str(self._directory / "archive"), "--destination", "stream://events"],
            "dead_letters": ["--destination", DEAD_LETTERS],
            "replay": [
                str(self._directory / "replay"), "--destination", DEAD_LETTERS, "--to", "again", "--broker", url,
            ],
        }  # fmt: skip
        for name in [name.replace("-", "_") for name in PIPELINES]:
            given = arguments_of.get(name, [])
            place = Path(pipelines.__path__[0]) / f"{name}.py"
            seen[name] = self._submit(cluster, lines, place, [*given, *login, "--output", "json"])
        depths = json.loads(self._quire("--output", "json", "queue", "ls", "--data", self._data))
        seen["depths"] = {row["name"]: row["depth"] for row in depths}
        return seen

    def _submit(self, cluster: StandaloneCluster, lines: str, program: Path, arguments: list[str]) -> Any:
        """Submit a program as the printed lines do it; the last line that it prints, which is JSON."""
        before = "\n".join(lines.splitlines()[:-1]).replace("spark://MASTER:7077", cluster.url)
        events = self._directory / "events"
        events.mkdir(exist_ok=True)
        settings = {**_SETTINGS, "spark.eventLog.dir": f"file://{events}"}
        also = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = f"{before}\n  {shlex.join([*also, str(program), *arguments])}"
        began = SystemClock().monotonic()
        environment = {**cluster.driver_environment(), "PYTHONPATH": str(ROOT)}
        output = self._directory / f"{program.stem}.out"
        with output.open("wb") as file:
            driver = subprocess.Popen(
                ["bash", "-c", command], env=environment, cwd=self._directory, stdout=file, stderr=file
            )
        try:
            code = driver.wait(_LIMIT)
        finally:
            for process in descendants(driver.pid):
                process.kill()
            driver.kill()
            driver.wait()
        self._seconds[program.stem] = round(SystemClock().monotonic() - began, 1)
        text = output.read_text("utf-8", "replace")
        found = [line for line in text.splitlines() if line.startswith("{")]
        assert found, f"{program.name} ended with {code}:\n{text[-8000:]}"
        return json.loads(found[-1])

    def _add_user(self) -> None:
        self._quire("user", "add", "spark", "--new-password-file", self._password, "--data", self._data)
        for destination in (*RULES, DEAD_LETTERS):
            self._quire("rule", "add", "user:spark", "allow", "read,write,create", destination, "--data", self._data)
        self._quire("send", "stream://secrets", "--body", "not for spark", "--data", self._data)

    def _quire(self, *arguments: object) -> str:
        command = [*_QUIRE, *map(str, arguments)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=_LIMIT)
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _secrets(self) -> list[bytes]:
        """The password, as it is sent too, and what signed tokens of the bulk server look like."""
        basic = base64.b64encode(f"spark:{PASSWORD}".encode())
        return [re.escape(PASSWORD.encode()), re.escape(basic), rb"[0-9a-f]{16}\.[0-9a-f]{64}"]

    def _with(self, *patterns: bytes) -> Iterator[Path]:
        """What Spark and the broker have written that has something: logs, event logs, outputs, checkpoints."""
        for path in sorted(self._directory.rglob("*")):
            is_ours = path == self._password or {"data", "bare"} & set(path.relative_to(self._directory).parts)
            if path.is_file() and not is_ours and path.suffix != ".zip" and "quire-packages" not in path.parts:
                content = path.read_bytes()
                if any([re.search(pattern, content) for pattern in patterns]):
                    yield path


def faults(seen: dict[str, Any], rows: int) -> list[str]:
    """What is not as it has to be."""
    program, audit = seen["program"], seen["audit"]
    expected: dict[str, tuple[object, object]] = {
        "messages of the queue": (program["orders"], rows),
        "bodies of the queue": (program["distinct"], rows),
        "bodies of the stream in Parquet": (program["events"], rows),
        "destinations that the user sees": (
            [name for name in program["destinations"] if "secrets" in name or "advisory" in name.lower()], [],
        ),
        "the refused read": ("unknown-destination" in program["refused"], True),
        "rows archived": (seen["archive"]["rows"], rows),
        "dead letters": (seen["dead_letters"]["count"], DEAD),
        "messages replayed": (seen["replay"]["messages"], DEAD),
        "queue again": (seen["depths"]["again"], DEAD),
        "queue copies": (seen["depths"]["copies"], rows),
        "committed in the audit": (audit["total"]["committed"] >= 2 * rows, True),
        "acknowledged in the audit": (audit["total"]["acknowledged"], CONSUMED),
        "the verdict": (audit["verdict"], "no fault"),
        "files with secrets": (seen["secrets"], []),
        "event logs that were searched": (seen["event_logs"] >= 5, True),
    }  # fmt: skip
    return [f"{what}: {found}, not {wanted}" for what, (found, wanted) in expected.items() if found != wanted]


def main() -> None:
    """Run it, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="how many messages are written [2000]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seen = Tour(Path(directory), given.rows).run()
    print(json.dumps(seen, indent=2))
    wrong = faults(seen, given.rows)
    print("\n".join(wrong) or "all as it has to be")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
