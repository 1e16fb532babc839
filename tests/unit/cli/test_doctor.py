"""``quire doctor``: what it finds, and what it advises."""

import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from quire import __version__
from quire.cli import api
from quire.cli import doctor as doctor_module
from quire.cli.doctor import Examination, Finding
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.settings import load
from quire.store.base import Sync
from quire.store.urls import store_for_url
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]
Usage = namedtuple("Usage", "total used free")

STATUS: dict[str, Any] = {
    "uptime_seconds": 5.0, "connections": 2, "version": __version__, "store_error": None, "producers_held": [],
}  # fmt: skip


def examined(directory: Path, **flags: object) -> dict[str, list[Finding]]:
    """What is found, by what was looked at; all ports are free ones."""
    given: dict[str, object] = {f"{name}.address": "127.0.0.1:0" for name in ("stomp", "openwire", "http")}
    given |= {"store.data": str(directory)} | flags
    found: dict[str, list[Finding]] = {}
    for finding in Examination(load(None, {}, given), SystemClock()).findings():
        found.setdefault(finding.check, []).append(finding)
    return found


def state(found: dict[str, list[Finding]], check: str) -> str:
    return found[check][-1].state


def test_a_fresh_place_has_no_problem(tmp_path: Path) -> None:
    found = examined(tmp_path / "new")
    assert not [each for several in found.values() for each in several if each.state in ("problem", "warning")
                and each.check != "limits"]  # fmt: skip
    assert "will be created" in found["data directory"][0].text
    assert "the broker creates it" in found["store"][0].text


def test_what_is_not_well_has_an_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000, 999, 1))
    found = examined(tmp_path, **{"memory.limit": 2**60, "backup.at": "03:00", "backup.directory": str(tmp_path)})
    assert state(found, "disk") == state(found, "memory") == "problem"
    wanting = [each for several in found.values() for each in several if each.state in ("problem", "warning")]
    assert all(each.advice for each in wanting)


def test_a_running_broker_is_asked(tmp_path: Path, broker: FakeBroker) -> None:
    facts = {"pid": os.getpid(), "stomp": "127.0.0.1:7001", "openwire": "127.0.0.1:7002", "http": "127.0.0.1:7003"}
    (tmp_path / "broker.json").write_text(json.dumps(facts))
    held = [{"cause": "store-limit"}, {"cause": "store-limit"}]
    broker.answer("GET", "/broker", {**STATUS, "version": "0.0.1", "store_error": "full", "producers_held": held})
    found = examined(tmp_path, **{"stomp.address": "127.0.0.1:7001"})
    assert [each.state for each in found["broker"]] == ["ok", "problem", "warning"]
    assert "2 producers: store-limit" in found["broker"][2].text
    assert state(found, "versions") == "warning"
    assert found["ports"][0].text == "stomp: the broker listens on 127.0.0.1:7001"


def test_a_clock_that_was_set_while_the_broker_ran_is_a_warning(tmp_path: Path, broker: FakeBroker) -> None:
    (tmp_path / "broker.json").write_text(json.dumps({"pid": os.getpid(), "http": "127.0.0.1:7003"}))
    broker.answer("GET", "/broker", {**STATUS, "clock_set": "the clock was set back by 3,600 s"})
    (finding, _) = examined(tmp_path)["clock"]
    assert (finding.state, finding.text) == ("warning", "while the broker ran, the clock was set back by 3,600 s")


def test_a_broker_that_crashed_is_told_from_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> tuple[int, bytes]:
        raise BrokerUnreachable("no broker answers")

    monkeypatch.setattr(api, "exchange", refuse)
    facts = {"pid": 2**22 + 1, "stomp": "127.0.0.1:1", "openwire": "127.0.0.1:1", "http": "127.0.0.1:1"}
    (tmp_path / "broker.json").write_text(json.dumps(facts))
    assert "crashed" in examined(tmp_path)["broker"][0].text
    (tmp_path / "broker.json").write_text(json.dumps(facts | {"pid": os.getpid()}))
    assert state(examined(tmp_path), "broker") == "problem"
    (tmp_path / "broker.json").write_text("{")
    assert state(examined(tmp_path), "broker") == "warning"


def test_a_port_in_use_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(_self: object, _address: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("quire.cli.doctor.socket.socket", type("Taken", (), {
        "__init__": lambda *_: None, "setsockopt": lambda *_: None, "bind": bind, "close": lambda _: None,
    }))  # fmt: skip
    found = examined(tmp_path, **{"stomp.address": "127.0.0.1:61613"})
    assert found["ports"][0].state == "problem"
    assert "another program listens there" in found["ports"][0].text


def test_a_store_is_opened_and_an_outdated_or_foreign_one_is_told(tmp_path: Path) -> None:
    store = store_for_url(f"lmdb://{tmp_path}/store", Sync.NEVER)
    assert store.try_lock("test")
    store.open()
    store.close()
    assert "can be read" in examined(tmp_path)["store"][0].text
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.mdb").write_bytes(b"x" * 5000)
    found = examined(tmp_path, **{"store.url": f"lmdb://{tmp_path}/other"})
    assert state(found, "store") == "problem"
    assert state(examined(tmp_path, **{"store.url": "memory:"}), "store") == "note"


def test_files_that_others_can_read_are_told(tmp_path: Path) -> None:
    data, audit = tmp_path / "data", tmp_path / "data" / "audit.log"
    data.mkdir()
    audit.touch()
    settings, key = tmp_path / "quire.toml", tmp_path / "key.pem"
    settings.write_text("")
    key.write_text("")
    tmp_path.chmod(0o711)

    def told(directory: int, file: int, other: int) -> list[str]:
        for path, mode in ((data, directory), (audit, file), (settings, other), (key, other)):
            path.chmod(mode)
        given = load(settings, {}, {"store.data": str(data), "store.url": "memory:"})
        given = replace(given, tls=replace(given.tls, certificate=str(key)))
        findings = [each for each in Examination(given, file=settings).findings() if each.check == "privacy"]
        assert all([finding.advice for finding in findings if finding.state == "warning"])
        return [finding.text.rpartition("/")[2] for finding in findings if finding.state == "warning"]

    assert told(0o755, 0o644, 0o644) == ["data", "key.pem", "quire.toml"]
    assert told(0o700, 0o600, 0o640) == []
    assert told(0o755, 0o640, 0o604) == ["key.pem", "quire.toml"]
    assert told(0o700, 0o644, 0o600) == []


def test_a_clock_that_was_set_back_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "broker.log").write_text("")
    ahead = SystemClock().now_ms() / 1000 + 500
    os.utime(tmp_path / "broker.log", (ahead, ahead))
    assert state(examined(tmp_path), "clock") == "warning"


def test_old_backups_and_network_disks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quire-20200101T030000Z").mkdir()
    found = examined(tmp_path, **{"backup.at": "03:00", "backup.directory": str(tmp_path)})
    assert state(found, "backup") == "warning"
    monkeypatch.setattr(doctor_module, "_file_system", lambda _: "nfs4")
    assert state(examined(tmp_path), "data directory") == "problem"


def test_wrong_settings_are_a_finding_and_a_problem_is_the_exit_code(tmp_path: Path, run: Run) -> None:
    result = run("doctor", "--memory-limit", "much")
    assert result.exit_code == 1
    assert result.output.startswith("PROBLEM settings: memory.limit = 'much' (flag) is not allowed")
    assert "what to do: Correct the setting" in result.output
    ports = [text for name in ("stomp", "openwire", "http") for text in (f"--{name}", "127.0.0.1:0")]
    result = run("doctor", "--data", str(tmp_path), *ports)
    assert result.exit_code == 0
    rows = json.loads(run("doctor", "--data", str(tmp_path), *ports, "--output", "json").output)
    assert {row["check"] for row in rows} >= {"settings", "disk", "clock", "ports", "limits", "versions"}
