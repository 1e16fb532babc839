"""Whether a process is dead is said only of one that is known to have been on this machine."""

import os
import subprocess

import pytest

from quire.store.postgresql import ownership


def identity_of(pid: int, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid)
        return ownership.own_process()


def test_this_process_lives() -> None:
    assert ownership.own_process()
    assert not ownership.is_dead_process(ownership.own_process())


def test_a_killed_process_is_dead_before_and_after_its_parent_has_taken_note(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = identity_of(process.pid, monkeypatch)
        assert not ownership.is_dead_process(identity)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert ownership.is_dead_process(identity)
    assert ownership.is_dead_process(identity)


def test_another_process_with_the_same_id_is_another_one() -> None:
    assert ownership.is_dead_process(ownership.own_process() + "0")


@pytest.mark.parametrize("process", ["", "1 2", "another-boot pid:[1] 1 1", "x y z w"])
def test_of_other_machines_nothing_is_known(process: str) -> None:
    assert not ownership.is_dead_process(process)


def test_processes_of_other_users_may_be_hidden_but_live(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not ownership.is_dead_process(ownership.own_process() + "0")


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    known = ownership.own_process()
    monkeypatch.setattr(ownership, "_PROC", tmp_path)
    assert ownership.own_process() == ""
    assert not ownership.is_dead_process(known)
