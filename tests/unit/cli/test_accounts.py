"""``quire user``, ``quire rule``, ``quire token``."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from quire.security.authentication import is_right
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_user_is_added_with_a_password_from_standard_input(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/users", {})
    result = run("user", "add", "alice", "--role", "monitor", "--certificate", "CN=alice", stdin=b"secret\n")
    assert result.output == "added alice\n"
    body = {"name": "alice", "password": "secret", "roles": ["monitor"], "certificates": ["CN=alice"]}
    assert broker.calls == [("POST", "/users", {}, body)]


def test_a_password_is_set_from_a_file(broker: FakeBroker, run: Run, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("new\n")
    broker.answer("PUT", "/users/a%2Fb/password", {"tokens": 0})
    assert run("user", "passwd", "a/b", "--new-password-file", "pw").output == "set the password of a/b\n"
    broker.answer("PUT", "/users/a%2Fb/password", {"tokens": 2})
    output = run("user", "passwd", "a/b", "--new-password-file", "pw").output
    assert "2 of its tokens are still valid" in output
    assert broker.calls[0][3] == {"password": "new"}


def test_the_hash_of_a_password_needs_no_broker(run: Run) -> None:
    result = run("user", "hash", stdin=b"secret\n")
    assert is_right(result.output.strip(), "secret")
    assert run("user", "hash", stdin=b"").exit_code == 2
