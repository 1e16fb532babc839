import json
from pathlib import Path
from typing import Any

import pytest

from quire.destination import DestinationKind
from quire.errors import AccessRefused
from quire.security import access as access_module
from quire.settings import Settings
from tests.unit.security.security_rig import CREATE, HERE, MANAGE, READ, WRITE, Later, Rig, allow, secured, user

QUEUE = DestinationKind.QUEUE


def rig_of(data: Path, **security: Any) -> Rig:
    return Rig(secured([user("alice")], [allow("user:alice", "orders", "read", "manage")], data, **security))


def lines(data: Path) -> list[dict[str, Any]]:
    file = data / "audit.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_line_says_who_did_what_to_what_when_from_where_and_whether_it_was_allowed(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    rig.security.audit.record("alice", HERE, "purge", "queue://orders", allowed=True, data={"messages": 3})
    assert lines(tmp_path) == [
        {
            "time": "2023-11-14T22:13:20.000+00:00", "user": "alice", "door": "stomp", "address": "192.0.2.1:5000",
            "action": "purge", "target": "queue://orders", "allowed": True, "data": {"messages": 3},
        }
    ]  # fmt: skip
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("none", [("manage", True)]),
        ("refused", [("write", False), ("create", False), ("manage", True)]),
        ("all", [("read", True), ("write", False), ("create", False), ("manage", True)]),
    ],
)
def test_data_actions_are_there_as_the_setting_says_once_for_each_destination(
    tmp_path: Path, data: str, expected: list[tuple[str, bool]]
) -> None:
    access = rig_of(tmp_path, audit_data=data).login("alice")
    for _ in range(3):
        for action in (READ, WRITE, CREATE, MANAGE):
            if action in (WRITE, CREATE):
                with pytest.raises(AccessRefused):
                    access.check(action, QUEUE, "orders")
            else:
                access.check(action, QUEUE, "orders")
        assert not access.allows(READ, QUEUE, "other")  # a question is no action
    assert [(line["action"], line["allowed"]) for line in lines(tmp_path)] == expected


def test_failed_logins_are_there_without_the_password(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    rig.attempt("alice", "secret-1")
    assert [(line["user"], line["action"], line["allowed"]) for line in lines(tmp_path)] == [("alice", "login", False)]
    assert "secret-1" not in (tmp_path / "audit.log").read_text()


def test_without_users_there_is_no_log(tmp_path: Path) -> None:
    rig = Rig(Settings())
    rig.login("").check(MANAGE, QUEUE, "q")
    assert list(tmp_path.iterdir()) == []


def test_a_large_file_is_numbered_and_the_oldest_goes(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, audit_size=1024, audit_count=2)
    for number in range(50):
        rig.security.audit.record("alice", HERE, "a", str(number), allowed=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [
        json.loads(line)["target"]
        for name in ("audit.log.2", "audit.log.1", "audit.log")
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert kept == [str(number) for number in range(50 - len(kept), 50)]
    assert all(path.stat().st_size < 1300 for path in tmp_path.iterdir())


def test_no_older_file_is_kept_if_their_number_is_0(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, audit_size=1024, audit_count=0)
    for number in range(20):
        rig.security.audit.record("alice", HERE, "a", str(number), allowed=True)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.log"]


def test_lines_beyond_the_limit_are_counted_and_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_WAITING", 5)
    files = Later()
    rig = Rig(secured([user("alice")], data=tmp_path), files=files)
    for number in range(10):
        rig.security.audit.record("alice", HERE, "a", str(number), allowed=True)
    assert rig.security.audit.dropped == 4  # one is being written, five wait
    files.finish()
    files.finish()
    assert len(lines(tmp_path)) == 6


def test_a_disk_that_refuses_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "quire")
    rig = rig_of(tmp_path)
    (tmp_path / "audit.log").mkdir()
    for _ in range(3):
        rig.security.audit.record("alice", HERE, "a", "b", allowed=True)
    (tmp_path / "audit.log").rmdir()
    rig.security.audit.record("alice", HERE, "a", "b", allowed=True)
    assert ["cannot be written" in record.message for record in caplog.records] == [True, False]
    assert rig.security.audit.dropped == 3
