"""A broker whose clients must log in, as a process: its first user, its files, its command line, SIGHUP."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-c", "from quire.cli.main import main; main()"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}


class Running:
    """A broker, and what it writes."""

    def __init__(self, directory: Path, *more: str) -> None:
        self.file, self.data = directory / "quire.toml", directory / "data"
        self.file.write_text("[security]\nenabled = true\n")
        flags = ["--data", str(self.data), "--config", str(self.file)]
        flags += ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0", *more]
        self.log = directory / "log"
        with self.log.open("wb") as log, (directory / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [*PROGRAM, "broker", "start", *flags], stderr=log, stdout=out, env=ENVIRONMENT
            )
        wait_for((self.data / "cli.token").exists)
        wait_for((self.data / "broker.json").exists)
        self.url = f"http://{json.loads((self.data / 'broker.json').read_text())['http']}/api/v1"

    def quire(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command line beside the broker."""
        return subprocess.run(
            [*PROGRAM, *arguments, "--data", str(self.data)], input=stdin, capture_output=True, text=True,
            env=ENVIRONMENT, timeout=90,
        )  # fmt: skip

    def status(self, path: str, auth: tuple[str, str] | None = None) -> int:
        return httpx.get(self.url + path, auth=auth).status_code


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so, at most ten seconds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    broker = Running(tmp_path)
    try:
        yield broker
    finally:
        broker.process.terminate()
        broker.process.wait(timeout=90)


@pytest.mark.parametrize("kind", ["lmdb", "sqlite"])
def test_what_a_broker_writes_is_for_its_user_alone(tmp_path: Path, kind: str) -> None:
    before = os.umask(0o022)
    try:
        broker = Running(tmp_path, "--store", f"{kind}://{tmp_path}/stores/messages", "--memory-limit", "1MiB")
        for _ in range(20):
            assert broker.quire("send", "orders", "--body", "x" * 100_000).returncode == 0
        assert broker.quire("user", "add", "alice", stdin="secret-2\n").returncode == 0
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait(timeout=90)
        target = tmp_path / "backups" / "one"
        done = broker.quire("store", "backup", str(target), "--store", f"{kind}://{tmp_path}/stores/messages")
        assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    made = [path for name in ("data", "stores", "backups") for path in (tmp_path / name, *(tmp_path / name).rglob("*"))]
    assert len(made) > 8, made
    assert {path: oct(mode) for path in made if (mode := path.stat().st_mode) & 0o077} == {}


def test_a_secured_broker_from_its_first_user_to_its_end(running: Running, tmp_path: Path) -> None:
    # It has made a user and says how to go on; no password is in its output, which may be a log.
    wait_for(lambda: "quire user passwd admin" in (tmp_path / "out").read_text())
    assert "is shown only now" not in (tmp_path / "out").read_text()
    assert {file.name: file.stat().st_mode & 0o777 for file in running.data.glob("*.[jt]*")} == {
        "broker.json": 0o600, "cli.token": 0o600, "security.json": 0o600,
    }  # fmt: skip
    assert (running.status("/queues"), running.status("/health")) == (401, 200)

    # The command line beside it needs no login, and gives the user a password.
    assert running.quire("queue", "ls").returncode == 0
    assert running.quire("user", "passwd", "admin", stdin="secret-1\n").stdout == "set the password of admin\n"
    assert running.quire("user", "add", "alice", stdin="secret-2\n").returncode == 0
    assert running.quire("rule", "add", "user:alice", "allow", "read,write,create", "orders.>").returncode == 0
    assert (running.status("/users", ("admin", "secret-1")), running.status("/users", ("alice", "secret-2"))) == (
        200, 403,
    )  # fmt: skip
    token = running.quire("token", "create", "--expires", "1h", "--owner", "alice").stdout.strip()
    secret = token.split("_", 2)[2]

    # Users and rules of the settings file are read again.
    running.file.write_text(
        '[security]\nenabled = true\n[[rules]]\nsubject = "*"\ndeny = ["read"]\ndestination = "orders.x"\n'
    )
    running.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "settings.reloaded" in running.log.read_text())
    assert "file-1: deny" in running.quire("rule", "check", "alice", "read", "orders.x").stdout
    assert '"restart_needed": false' in running.log.read_text()

    # What was refused is in the audit log, and no secret is anywhere.
    httpx.delete(running.url + "/queues/orders.x", auth=("alice", "secret-2"))
    running.process.terminate()
    running.process.wait(timeout=90)
    lines = [json.loads(line) for line in (running.data / "audit.log").read_text().splitlines()]
    assert [line["action"] for line in lines if line["user"] == "$local"] == [
        "PUT /users/{user}/password", "POST /users", "POST /rules", "POST /tokens",
    ]  # fmt: skip
    assert [(line["action"], line["target"]) for line in lines if not line["allowed"]] == [
        ("GET /users", "/users"), ("DELETE /queues/{name}", "/queues/orders.x"),
    ]  # fmt: skip
    assert not (running.data / "cli.token").exists()
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for text in written for word in ("secret-1", "secret-2", secret) if word.encode() in text]
