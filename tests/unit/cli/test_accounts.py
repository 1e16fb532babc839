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


def test_a_user_may_have_no_password(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/users", {})
    run("user", "add", "alice", "--no-password")
    assert broker.calls[0][3]["password"] is None


def test_a_password_is_set_from_a_file(broker: FakeBroker, run: Run, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("new\n")
    broker.answer("PUT", "/users/a%2Fb/password", {"tokens": 0})
    assert run("user", "passwd", "a/b", "--new-password-file", "pw").output == "set the password of a/b\n"
    broker.answer("PUT", "/users/a%2Fb/password", {"tokens": 2})
    output = run("user", "passwd", "a/b", "--new-password-file", "pw").output
    assert "2 of its tokens are still valid" in output
    assert broker.calls[0][3] == {"password": "new"}


def test_roles_are_set_and_users_removed(broker: FakeBroker, run: Run) -> None:
    broker.answer("PUT", "/users/alice", {"roles": []})
    assert run("user", "role", "alice").output == "alice has the roles: none\n"
    broker.answer("PUT", "/users/alice", {"roles": ["x", "y"]})
    assert run("user", "role", "alice", "y", "x").output == "alice has the roles: x, y\n"
    broker.answer("DELETE", "/users/alice", {})
    assert run("user", "rm", "alice", "--yes").output == "removed alice\n"


def test_the_hash_of_a_password_needs_no_broker(run: Run) -> None:
    result = run("user", "hash", stdin=b"secret\n")
    assert is_right(result.output.strip(), "secret")
    assert run("user", "hash", stdin=b"").exit_code == 2


def test_rules_are_added_replaced_and_removed(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/rules", {"id": "r7"})
    assert run("rule", "add", "user:alice", "deny", "read,write", "a.>").output == "added the rule r7\n"
    broker.answer("PUT", "/rules/r7", {})
    assert run("rule", "set", "r7", "*", "allow", "read", "b").output == "changed the rule r7\n"
    broker.answer("DELETE", "/rules/r7", {})
    assert run("rule", "rm", "r7", "--yes").output == "removed the rule r7\n"
    assert [call[3] for call in broker.calls] == [
        {"subject": "user:alice", "deny": ["read", "write"], "destination": "a.>"},
        {"subject": "*", "allow": ["read"], "destination": "b"},
        None,
    ]
    assert run("rule", "add", "*", "allow", "read, write", "b").exit_code == 2


def test_a_check_prints_the_reason(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/rules/check", {"text": "because"})
    assert run("rule", "check", "alice", "write", "orders").output == "because\n"
    run("rule", "check", "alice", "write", "orders", "--role", "x", "--role", "y")
    question = {"user": "alice", "action": "write", "destination": "orders"}
    assert [call[2] for call in broker.calls] == [question, {**question, "roles": "x,y"}]


def test_a_new_token_is_printed_alone(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/tokens", {"secret": "qt_a_b", "token": {}})
    assert run("token", "create", "--expires", "1h", "--role", "monitor", "--text", "x").output == "qt_a_b\n"
    assert broker.calls[0][3] == {"expires_in": 3600.0, "owner": None, "roles": ["monitor"], "text": "x"}
    assert run("token", "create", "--expires", "soon").exit_code == 2
    broker.answer("DELETE", "/tokens/a", {})
    assert run("token", "revoke", "a").output == "revoked the token a\n"
