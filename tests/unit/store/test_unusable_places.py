"""A place where no store can be, or where something else is: the error says what to do, also before a migration."""

from pathlib import Path

import pytest

from quire.errors import DirectoryUnusable, StoreUnreadable
from quire.migrations.runner import prepare
from quire.store.urls import store_for_url


def _data_file(kind: str, directory: Path) -> Path:
    return directory / "data.mdb" if kind == "lmdb" else directory / "quire.db"


def _url(kind: str, directory: Path) -> str:
    return f"lmdb://{directory}" if kind == "lmdb" else f"sqlite:///{_data_file(kind, directory)}"


@pytest.mark.parametrize("kind", ["lmdb", "sqlite"])
def test_a_directory_that_cannot_be_made_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(DirectoryUnusable, match=str(tmp_path / "file")) as caught:
        store_for_url(_url(kind, tmp_path / "file" / "store")).try_lock("a broker")
    assert "--data" in caught.value.entry.advice


@pytest.mark.parametrize("kind", ["lmdb", "sqlite"])
def test_a_damaged_file_is_not_called_a_server_that_is_away(kind: str, tmp_path: Path) -> None:
    file = _data_file(kind, tmp_path)
    file.write_bytes(b"no store" * 4096)
    with pytest.raises(StoreUnreadable) as caught:
        prepare(_url(kind, tmp_path))
    assert "quire store restore" in caught.value.entry.advice
    with pytest.raises(StoreUnreadable):
        store_for_url(_url(kind, tmp_path)).open()
    assert file.read_bytes() == b"no store" * 4096
