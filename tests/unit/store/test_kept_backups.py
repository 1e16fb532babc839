"""The directory of daily backups: what is kept, what is removed, what is told."""

import json
from pathlib import Path

import pytest

from quire.clock import ManualClock
from quire.errors import StoreError, StoreUnreachable
from quire.store.base import Sync
from quire.store.maintenance.backups import KeptBackups, main
from quire.store.maintenance.open_store import open_for_reading
from quire.store.urls import store_for_url


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that exists."""
    found = f"lmdb://{tmp_path}/store"
    store = store_for_url(found, Sync.NEVER)
    assert store.try_lock("test")
    store.open()
    store.close()
    return found


def test_the_newest_backups_are_kept_and_what_was_interrupted_is_removed(tmp_path: Path, url: str) -> None:
    clock, kept = ManualClock(1_700_000_000_000), KeptBackups(tmp_path / "b")
    assert kept.newest_ms() is None
    (tmp_path / "b" / "quire-20200101T000000Z.part").mkdir(parents=True)
    (tmp_path / "b" / "other").write_text("of the user")
    made = []
    for _ in range(3):
        made.append(kept.add(url, 2, clock))
        clock.advance(86_400)
    assert sorted(tmp_path.joinpath("b").iterdir()) == sorted([tmp_path / "b" / "other", *made[1:]])
    assert kept.all() == made[1:]
    assert kept.newest_ms() == 1_700_000_000_000 + 2 * 86_400_000
    with open_for_reading(f"lmdb://{made[-1]}") as (store, _):
        assert store.destinations() == []


def test_a_backup_that_fails_removes_none(tmp_path: Path, url: str) -> None:
    kept = KeptBackups(tmp_path / "b")
    old = kept.add(url, 1, ManualClock())
    with pytest.raises(StoreUnreachable):
        kept.add(f"lmdb://{tmp_path}/none", 1, ManualClock(1_800_000_000_000))
    assert kept.all() == [old]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        KeptBackups(tmp_path / "file").add(url, 1, ManualClock())


def test_the_program_tells_what_it_did_in_a_line(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([url, str(tmp_path / "b"), "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["target"]).parent == tmp_path / "b"
    assert told["bytes"] > 0
    assert main([f"lmdb://{tmp_path}/none", str(tmp_path / "b"), "2"]) == 1
    assert "store-unreachable" in json.loads(capsys.readouterr().out)["error"]
