"""Marks survive whatever maintenance does: many of them, and large ones."""

from pathlib import Path

import pytest

from quire.errors import InvalidArgument
from quire.store.base import WriteBatch, walk_marks
from quire.store.maintenance.backups import restore
from quire.store.maintenance.open_store import open_for_reading, open_for_writing
from quire.store.maintenance.transfer import dump, import_lines
from quire.testing.faults import FaultyStore
from tests.unit.store.maintained import fill, findings, lines, mend
from tests.unit.store.tampering import PagedTampering

MARKS = {
    **{f"sub/ä/{number:016x}": bytes([number % 256]) * number for number in range(50)},
    "xa/prepared": bytes(range(256)) * (1 << 12),
    "xa/none": b"",
}


@pytest.fixture(params=["lmdb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}://{tmp_path}/store"
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
        opened.store.apply(WriteBatch(marks={**MARKS, "transaction": None}))
    return url


def marks(url: str) -> dict[str, bytes]:
    with open_for_reading(url) as opened:
        return dict(walk_marks(opened.store))


@pytest.mark.parametrize("scheme", ["lmdb", "sqlite"])
def test_export_and_import(url: str, tmp_path: Path, scheme: str) -> None:
    imported = f"{scheme}://{tmp_path}/imported"
    with open_for_writing(imported, create=True) as opened:
        import_lines(opened.store, lines(url))
    assert marks(imported) == MARKS
    assert findings(imported) == []


def test_large_marks_are_imported_a_few_at_a_time(tmp_path: Path) -> None:
    exported = [dump({"type": "quire-export", "version": 1})]
    exported += [dump({"type": "mark", "key": f"xa/{number}", "value": "QUJD" * (1 << 19)}) for number in range(7)]
    with open_for_writing(f"lmdb://{tmp_path}/store", create=True) as opened:
        store = FaultyStore(opened.store)
        import_lines(store, exported)
        assert store.commits == 3
        assert len(store.marks("xa/")) == 7


def test_an_import_replaces_no_mark(url: str) -> None:
    exported = [dump({"type": "quire-export", "version": 1}), dump({"type": "mark", "key": "xa/none", "value": ""})]
    with open_for_writing(url) as opened:
        import_lines(opened.store, exported)
        with pytest.raises(InvalidArgument, match="xa/none"):
            import_lines(opened.store, [exported[0], exported[1].replace('""', '"AAAA"')])
    assert marks(url) == MARKS


def test_backup_and_restore(url: str, tmp_path: Path) -> None:
    with open_for_reading(url) as opened:
        opened.maintenance.backup(tmp_path / "backup")
    restored = f"{url.partition(':')[0]}://{tmp_path}/restored"
    restore(restored, tmp_path / "backup")
    assert marks(restored) == MARKS


def test_compact(url: str) -> None:
    with open_for_writing(url) as opened:
        opened.maintenance.compact()
    assert marks(url) == MARKS


def test_verify_and_repair(url: str, tmp_path: Path) -> None:
    assert findings(url) == []
    PagedTampering(url).set_state(count=1)
    assert mend(url, tmp_path / "damaged").lanes == 1
    assert marks(url) == MARKS
