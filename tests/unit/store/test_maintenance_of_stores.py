from pathlib import Path

import pytest

from quire.errors import InvalidArgument, StoreLocked, StoreUnreachable, UnknownDestination, UnknownMessage
from quire.message import Message
from quire.store.base import StoredDestination, WriteBatch
from quire.store.disk import FileLock
from quire.store.maintenance.backups import restore
from quire.store.maintenance.open_store import maintenance_of, open_for_reading, open_for_writing
from quire.store.maintenance.verify import chain, find_destination, find_message
from quire.store.memory import MemoryStore
from quire.store.urls import store_exists
from tests.unit.store.maintained import LEFT, fill, findings, lines, sequences


@pytest.fixture(params=["lmdb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}://{tmp_path}/store"
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    return url


def lock_file(url: str) -> Path:
    path = Path(url.partition("://")[2])
    return path / "lock" if url.startswith("lmdb") else path.with_name(path.name + ".lock")


@pytest.mark.parametrize("scheme", ["lmdb", "sqlite"])
def test_nothing_is_made_where_no_store_is(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://{tmp_path}/none"
    with pytest.raises(StoreUnreachable), open_for_reading(url):
        pass
    with pytest.raises(StoreUnreachable), open_for_writing(url):
        pass
    assert not store_exists(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["memory:", "http://me:secret@localhost/"])
def test_what_is_not_kept_cannot_be_looked_after(url: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        store_exists(url)
    assert "secret" not in f"{raised.value} {raised.value.data}"


def test_a_memory_store_has_no_maintenance() -> None:
    with pytest.raises(InvalidArgument):
        maintenance_of(MemoryStore())


def test_a_running_broker_keeps_writers_out_and_lets_readers_in(url: str) -> None:
    lock = FileLock(lock_file(url))
    assert lock.acquire("the broker")
    try:
        with pytest.raises(StoreLocked, match="the broker"), open_for_writing(url):
            pass
        assert sequences(url) == LEFT
        with open_for_reading(url) as opened:
            assert opened.store.lock_owner() == "the broker"
    finally:
        lock.release()


def test_the_lock_is_given_back(url: str) -> None:
    with open_for_writing(url) as opened:
        assert "maintenance" in opened.store.lock_owner()
    with open_for_writing(url):
        pass


def test_a_backup_is_a_store_and_restores_elsewhere(url: str, tmp_path: Path) -> None:
    with open_for_reading(url) as opened:
        opened.maintenance.backup(tmp_path / "backup")
    scheme = url.partition(":")[0]
    assert lines(f"{scheme}://{tmp_path}/backup") == lines(url)
    restore(f"{scheme}://{tmp_path}/new", tmp_path / "backup")
    assert lines(f"{scheme}://{tmp_path}/new") == lines(url)
    assert findings(f"{scheme}://{tmp_path}/new") == []


def test_a_backup_never_overwrites(url: str, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with open_for_reading(url) as opened, pytest.raises(InvalidArgument):
        opened.maintenance.backup(tmp_path / "there")


def test_a_store_is_replaced_by_force_only(url: str, tmp_path: Path) -> None:
    before = lines(url)
    with open_for_reading(url) as opened:
        opened.maintenance.backup(tmp_path / "backup")
    with open_for_writing(url) as opened:
        batch = WriteBatch()
        batch.lane(1).removals += LEFT
        opened.store.apply(batch)
    with pytest.raises(InvalidArgument, match="--force"):
        restore(url, tmp_path / "backup")
    assert sequences(url) == []
    restore(url, tmp_path / "backup", force=True)
    assert lines(url) == before


def test_what_is_no_backup_is_not_restored(url: str, tmp_path: Path) -> None:
    before = lines(url)
    other = tmp_path / "other"
    other.write_bytes(b"something else" * 100)
    with pytest.raises(StoreUnreachable, match="not a backup"):
        restore(url, other, force=True)
    assert lines(url) == before


def test_compacting_gives_space_back_and_changes_nothing_else(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.store.maintenance.embedded._PAGES_AT_ONCE", 2)
    with open_for_writing(url) as opened:
        batch = WriteBatch()
        batch.destinations[3] = StoredDestination(3, "queue", "big", {}, (3,))
        big = [Message(at, b"message-id:%d\n\n" % at + b"x" * 10_000) for at in range(1, 101)]
        batch.lane(3).appends += big
        opened.store.apply(batch)
        # One record of six keeps each page alive; its body page has all six.
        batch = WriteBatch()
        batch.lane(3).removals += [at for at in range(1, 101) if at % 6]
        opened.store.apply(batch)
        opened.store.sync()
    before = lines(url)
    with open_for_writing(url) as opened:
        full = sum(file.stat().st_size for file in opened.maintenance.files())
        opened.maintenance.compact()
        compacted = sum(file.stat().st_size for file in opened.maintenance.files())
    assert compacted < full / 2
    assert lines(url) == before
    assert findings(url) == []


def test_compacting_twice_is_as_good_as_once(url: str) -> None:
    before = lines(url)
    for _ in range(2):
        with open_for_writing(url) as opened:
            opened.maintenance.compact()
    assert lines(url) == before


def test_the_chain_around_a_record_follows_the_links(url: str) -> None:
    with open_for_reading(url) as opened:
        orders = find_destination(opened.store, "orders")
        found = [(link.previous, link.sequence, link.next) for link in chain(opened.store, orders, 5, 1)]
        everything = [link.sequence for link in chain(opened.store, orders, 5, 100)]
    assert found == [(1, 2, 5), (2, 5, 6), (5, 6, 7)]
    assert everything == LEFT


def test_what_is_looked_for_is_there_or_named(url: str) -> None:
    with open_for_reading(url) as opened:
        orders = find_destination(opened.store, "queue://orders")
        lane, message = find_message(opened.store, orders, 5)
        assert (lane, message.id) == (1, "m-5")
        with pytest.raises(UnknownMessage):
            find_message(opened.store, orders, 3)
        with pytest.raises(UnknownMessage):
            chain(opened.store, orders, 3, 1)
        with pytest.raises(UnknownDestination):
            find_destination(opened.store, "none")
