"""Whether a process is dead is said only of one that is known to have been on this machine."""

import os
import subprocess

import pytest

from quire.store.postgresql import process_identity


def identity_of(pid: int, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid)
        return process_identity.own()


def test_this_process_lives() -> None:
    assert process_identity.own()
    assert not process_identity.is_dead(process_identity.own())


def test_a_killed_process_is_dead_before_and_after_its_parent_has_taken_note(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = identity_of(process.pid, monkeypatch)
        assert not process_identity.is_dead(identity)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_identity.is_dead(identity)
    assert process_identity.is_dead(identity)


def test_another_process_with_the_same_id_is_another_one() -> None:
    assert process_identity.is_dead(process_identity.own() + "0")


@pytest.mark.parametrize("process", ["", "1 2", "another-boot pid:[1] 1 1", "x y z w"])
def test_of_other_machines_nothing_is_known(process: str) -> None:
    assert not process_identity.is_dead(process)


def test_processes_of_other_users_may_be_hidden_but_live(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not process_identity.is_dead(process_identity.own() + "0")


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    known = process_identity.own()
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    assert process_identity.own() == ""
    assert not process_identity.is_dead(known)
