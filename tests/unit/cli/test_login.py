"""Who the command line is to a broker."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from quire.cli.api import Login, find_login
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]
URL = "http://127.0.0.1:8161"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("QUIRE_USER", "QUIRE_PASSWORD_FILE", "QUIRE_TOKEN", "QUIRE_STORE__DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def started(data: Path, http: str = "127.0.0.1:8161") -> Path:
    """The files of a broker that runs on a data directory."""
    data.mkdir()
    (data / "broker.json").write_text(json.dumps({"http": http}))
    (data / "cli.token").write_text("qt_local_x\n")
    return data


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_user_and_the_first_line_of_a_password_file(broker: FakeBroker, run: Run, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("päss:word\nmore\n")
    broker.answer("GET", "/whoami", {})
    assert run("whoami", "--user", "alice", "--password-file", "pw").exit_code == 0
    assert broker.authorization == basic("alice", "päss:word")
    assert run("whoami", "--user", "bob", "--password-file", "-", stdin=b"typed\n").exit_code == 0
    assert broker.authorization == basic("bob", "typed")


def test_a_token_from_a_file_or_the_environment(
    broker: FakeBroker, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("qt_a_b")
    broker.answer("GET", "/whoami", {})
    run("whoami", "--token-file", "token")
    assert broker.authorization == "Bearer qt_a_b"
    monkeypatch.setenv("QUIRE_TOKEN", "qt_c_d")
    run("whoami")
    assert broker.authorization == "Bearer qt_c_d"
    run("whoami", "--user", "alice", "--password-file", "token")  # an option counts more
    assert broker.authorization == basic("alice", "qt_a_b")


def test_user_and_password_file_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pw").write_text("secret")
    monkeypatch.setenv("QUIRE_USER", "alice")
    monkeypatch.setenv("QUIRE_PASSWORD_FILE", "pw")
    assert find_login(URL, None, None, None, None) == Login("alice", "secret")


def test_without_a_terminal_a_password_must_come_from_a_file(broker: FakeBroker, run: Run) -> None:
    result = run("whoami", "--user", "alice")
    assert result.exit_code == 2
    assert "--password-file" in result.stderr
    assert run("whoami", "--user", "alice", "--password-file", "nowhere").exit_code == 2
    assert broker.calls == []


@pytest.mark.parametrize(
    ("url", "http", "found"),
    [
        (URL, "127.0.0.1:8161", True), ("http://localhost:8161", "127.0.0.1:8161", True), (URL, "0.0.0.0:8161", True),
        ("http://[::1]:8161", "127.0.0.1:8161", True), (URL, "127.0.0.1:8162", False),
        ("http://192.0.2.1:8161", "127.0.0.1:8161", False), ("http://127.0.0.1", "127.0.0.1:8161", False),
        ("http://127.0.0.1.example:8161", "127.0.0.1:8161", False), ("http://192.0.2.1:8161", "0.0.0.0:8161", False),
    ],
)  # fmt: skip
def test_on_the_machine_of_the_broker_its_own_file_is_enough(tmp_path: Path, url: str, http: str, found: bool) -> None:
    started(tmp_path / "data", http)
    assert find_login(url, None, None, None, None) == (Login(passcode="qt_local_x") if found else Login())


def test_the_file_is_that_of_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(started(tmp_path / "other"))
    assert find_login(URL, None, None, None, None) == Login()
    assert find_login(URL, data, None, None, None).passcode == "qt_local_x"
    monkeypatch.setenv("QUIRE_STORE__DATA", data)
    assert find_login(URL, None, None, None, None).passcode == "qt_local_x"


def test_nothing_shows_a_passcode() -> None:
    assert "secret" not in repr(Login("alice", "secret"))
