"""How many shards a broker has on its machine, where their stores are, and how a store is divided among them."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from quire.cluster.cluster_map import FRONT, shard_of_key
from quire.cluster.directory import Directory
from quire.errors import InvalidSettings, StoreError
from quire.server.cluster.shard_places import local_database, local_flags, local_shard_url, serve_shard, split
from quire.settings import Settings, load, store_url
from quire.store.base import Sync
from quire.store.maintenance.open_store import open_for_reading
from quire.store.urls import store_exists, store_for_url
from quire.testing.stepped import SteppedBroker

ADDRESSES = {"stomp.address": "127.0.0.1:1"}

Made = Callable[..., Settings]


@pytest.fixture(params=["lmdb", "sqlite"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Makes settings of a broker with a store of a kind."""
    url = "" if request.param == "lmdb" else f"sqlite://{tmp_path}/store.db"

    def make(**flags: object) -> Settings:
        named = {key.replace("__", "."): value for key, value in flags.items()}
        return load(None, {}, {"store.data": str(tmp_path / "data"), "store.url": url, **named})

    return make


def fill(settings: Settings, *names: str, headers: Mapping[str, str] | None = None) -> None:
    """Leave a store with queues of one message each."""
    Path(settings.store.data).mkdir(exist_ok=True)
    with closing(store_for_url(store_url(settings), Sync.NEVER)) as store:
        store.open()
        broker = SteppedBroker(settings, store)
        client = broker.connect()
        for name in names:
            client.send(name, b"m", headers)
        broker.run()


def test_a_broker_is_one_process_unless_it_is_told_otherwise(made: Made) -> None:
    assert local_flags(made()) == local_flags(made(broker__shards=1)) == {}
    flags = local_flags(made(broker__shards=3))
    assert (flags["cluster.shards"], flags["cluster.name"]) == (3, "quire")


def test_a_data_directory_keeps_its_number_of_shards(made: Made) -> None:
    settings = made(broker__shards=2)
    Path(settings.store.data).mkdir()
    with closing(Directory(local_database(settings))) as directory:
        directory.form(2, ("embedded",))
    assert local_flags(made())


def test_every_shard_has_a_store_and_its_part_of_the_memory(made: Made) -> None:
    settings = made(memory__limit=64 << 20)
    served = [serve_shard(settings, ("embedded",), 2, shard, ADDRESSES) for shard in (0, 1)]
    urls = [serve.flags["store.url"] for serve in served]
    assert urls == [local_shard_url(settings, 0), local_shard_url(settings, 1)]
    assert len(set(urls)) == 2
    assert [serve.flags["memory.limit"] for serve in served] == [32 << 20, 32 << 20]
    assert serve_shard(settings, ("embedded",), 2, FRONT, ADDRESSES).flags["store.url"] == "memory:"


def test_shards_of_one_machine_are_not_in_a_database_server() -> None:
    with pytest.raises(InvalidSettings, match="quire cluster start"):
        local_flags(load(None, {}, {"broker.shards": 2, "store.url": "postgresql://quire@localhost/quire"}))


def test_a_store_of_one_process_is_not_taken_for_one_of_shards(made: Made) -> None:
    fill(made(), "a")
    with pytest.raises(InvalidSettings, match="quire store split --shards 4"):
        local_flags(made(broker__shards=4))


def test_what_a_divided_store_has_stays_at_shard_0(made: Made) -> None:
    names = [f"q{number}" for number in range(8)]
    fill(settings := made(), *names)
    elsewhere = [name for name in names if shard_of_key(f"queue://{name}", 3)]
    assert split(settings, 3) == len(elsewhere) > 0
    assert not store_exists(store_url(settings))
    with closing(Directory(local_database(settings))) as directory:
        assert directory.facts().shards == 3
        assert {pin.destination for pin in directory.read().pins.values()} == {f"queue://{name}" for name in elsewhere}
        assert {pin.shard for pin in directory.read().pins.values()} == {0}
    with open_for_reading(local_shard_url(settings, 0)) as opened:
        assert len([d for d in opened.store.destinations() if d.kind == "queue"]) == 8
        assert len(opened.store.marks("pin:")) == len(elsewhere)
    assert local_flags(made())["cluster.shards"] == 1  # what was formed counts


def test_a_division_that_was_cut_off_goes_on(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(settings := made(), "q1", "q2")

    def lost(self: Directory, *arguments: object) -> None:
        raise StoreError("the process was lost")

    with monkeypatch.context() as patch:
        patch.setattr("quire.server.cluster.shard_places._move", lost)
        with pytest.raises(StoreError):
            split(settings, 2)
    with pytest.raises(InvalidSettings, match="not divided to its end"):
        local_flags(made())
    split(settings, 2)
    assert local_flags(made())


def test_a_store_with_scheduled_messages_is_not_divided(made: Made) -> None:
    fill(settings := made(), "q1", headers={"AMQ_SCHEDULED_DELAY": "60000"})
    with pytest.raises(InvalidSettings, match="messages are scheduled"):
        split(settings, 2)
    assert store_exists(store_url(settings))


def test_users_that_were_made_while_the_broker_ran_are_written_down_first(made: Made) -> None:
    fill(settings := made(), "q1")
    (Path(settings.store.data) / "security.json").write_text("{}")
    with pytest.raises(InvalidSettings, match="settings file"):
        split(settings, 2)
