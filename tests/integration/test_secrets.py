"""No password and no token is where others could read it: logs, answers, process lists, files, texts of objects."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quire.cli.perf.load import Target
from quire.security import Credentials
from quire.settings import load
from tests.integration.test_tls import CONNECT, Secured, answer, quire

pytestmark = pytest.mark.slow

PASSWORD, WRONG = "correct-horse-battery", "wrong-horse-battery"


def processes() -> str:
    """The arguments of all processes."""
    found = b""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                found += (process / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
    return found.decode("utf-8", "replace")


def running(verb: tuple[str, ...]) -> str:
    """The arguments of all processes while a command runs, and those that it has started."""
    listed = ""
    with subprocess.Popen([sys.executable, "-m", "quire.cli.main", *verb], stdout=subprocess.DEVNULL) as command:
        while command.poll() is None:
            listed += processes()
            time.sleep(0.05)
    assert command.returncode == 0
    assert "--password-file" in listed, "the command itself was seen"
    return listed


def test_secrets_are_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    hashed = quire("user", "hash", "--new-password-file", str(file))
    assert hashed.returncode == 0, hashed.stderr
    users = f'[[users]]\nname = "alice"\npassword_hash = "{hashed.stdout.strip()}"\nroles = ["administrator"]\n'
    broker = Secured(tmp_path, more=users + '[security]\naudit_data = "all"\n')
    printed = [hashed.stdout, hashed.stderr]
    with broker.running():
        there = ("--data", str(broker.data), "--user", "alice", "--password-file", str(file))
        made = quire("token", "create", "--expires", "1h", "--owner", "alice", *there)
        assert made.returncode == 0, made.stderr
        token = made.stdout.strip().split()[-1]
        assert re.fullmatch(r"qt_\w+_\S+", token), made.stdout
        (tmp_path / "token").write_text(token)
        with_token = ("--data", str(broker.data), "--token-file", str(tmp_path / "token"))
        shown = ""
        for password in (PASSWORD, WRONG, token):
            with broker.plain("stomp") as connection:
                login = CONNECT.replace(b"\n\n", b"\nlogin:alice\npasscode:%s\n\n" % password.encode())
                shown += answer(connection, login, b"\0").decode()
            request = f"GET /api/v1/broker HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {password}\r\n\r\n"
            with broker.plain("http") as connection:
                shown += answer(connection, request.encode(), b"}").decode()
        for verb in (
            ("queue", "ls"),
            ("user", "ls"),
            ("token", "ls"),
            ("rule", "ls"),
            ("broker", "status"),
            ("whoami",),
        ):
            done = quire(*verb, *with_token, "--output", "json")
            assert done.returncode == 0, done.stderr
            printed += [done.stdout, done.stderr]
        listed = running(("perf", "run", "--messages", "20000", *there))
    files = "".join([path.read_text("utf-8", "replace") for path in broker.data.glob("*") if path.is_file()])
    settings = load(tmp_path / "quire.toml", {}, {})
    texts = {
        "answers": shown, "the command line": "".join(printed), "processes": listed, "files of the broker": files,
        "the log": broker.log, "settings": repr(settings),
        "objects": repr([Credentials("alice", PASSWORD, token), Target("h", 1, "alice", PASSWORD)]),
    }  # fmt: skip
    assert "alice" in files, "the audit log is among them"
    for where, text in texts.items():
        for secret in (PASSWORD, WRONG, token, token.rpartition("_")[2]):
            assert secret not in text, f"a secret is in {where}"
    shown_hash = "".join([shown, broker.log, *printed[1:], listed, repr(settings)])
    assert hashed.stdout.strip() not in shown_hash, "the hash of a password is in the settings file alone"
