"""Divides the store of a broker that was one process among shards of its machine.

The store becomes that of shard 0, and nothing in it moves: what lies elsewhere by its name is pinned to shard 0, as if
an operator had placed it there. What is made later is spread by its name. A queue that was emptied and deleted can be
placed anew, with ``quire cluster place --unpin``.

Every step can be taken again: if the process is lost meanwhile, the same command goes on.
"""

from contextlib import closing
from pathlib import Path

from quire.broker.schedule import KIND as SCHEDULE
from quire.broker.topics.durables import MARKS as PATTERNS
from quire.broker.transactions.xa import PREFIX as PREPARED
from quire.cluster.cluster_map import shard_of_key
from quire.cluster.directory import Directory
from quire.cluster.placement import SPREAD, Placement
from quire.cluster.view import PinRow
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidSettings
from quire.server.cluster.kept_pins import mark_of
from quire.server.cluster.shard_places import EMBEDDED, local_database, local_shard_url
from quire.settings import Settings, security_file, store_url
from quire.store.base import Store, WriteBatch
from quire.store.maintenance.open_store import open_for_writing
from quire.store.urls import store_path


def split(settings: Settings, shards: int) -> int:
    """Divide a store that no broker uses.

    Args:
        settings: those of the broker.
        shards: how many there will be.

    Returns:
        How many placement keys were pinned to shard 0.

    Raises:
        InvalidSettings: the store has what cannot stay where it is, or there is none.
    """
    url = store_url(settings)
    file = security_file(settings)
    if file is not None and file.exists():
        text = (
            f"the users of a broker with shards are in the settings file: write those of {file} there, then remove it"
        )
        raise InvalidSettings(text, key="users")
    with open_for_writing(url) as opened:
        _check(opened.store)
        pins = _pins(opened.store, Placement(settings), shards)
        batch = WriteBatch()
        for pin in pins:
            key, value = mark_of(pin)
            batch.marks[key] = value
        opened.store.apply(batch)
        Path(settings.store.data).mkdir(parents=True, exist_ok=True)
        with closing(Directory(local_database(settings))) as directory:
            directory.form(shards, (EMBEDDED,))
            for pin in pins:
                directory.pin(pin)
    _move(url, local_shard_url(settings, 0))
    return len(pins)


def _check(store: Store) -> None:
    """Refuse a store with what the broker looks for at other shards."""
    scheduled = [d for d in store.destinations() if d.kind == SCHEDULE and store.lane_state(d.lanes[0]).count]
    reasons = {
        "messages are scheduled": bool(scheduled),
        "there are durable subscriptions of patterns": bool(store.marks(PATTERNS, limit=1)),
        "transactions are prepared": bool(store.marks(PREPARED, limit=1)),
    }
    if found := [reason for reason, is_so in reasons.items() if is_so]:
        text = f"the store cannot be divided while {' and '.join(found)}: start the broker as it was, and end them"
        raise InvalidSettings(text, key="broker.shards")


def _pins(store: Store, placement: Placement, shards: int) -> list[PinRow]:
    """What says that the destinations that are there stay at shard 0."""
    pins: dict[str, PinRow] = {}
    for stored in store.destinations():
        if stored.kind not in list(DestinationKind):  # the broker's own, which each shard has
            continue
        destination = Destination(DestinationKind(stored.kind), stored.name)
        key = placement.key_of(destination)
        if key != SPREAD and shard_of_key(key, shards) != 0:
            pins[key] = PinRow(key, str(destination), 0, 1)
    return list(pins.values())


def _move(url: str, target: str) -> None:
    """Rename a store that is closed, with the files beside it."""
    source, place = store_path(url), store_path(target)
    assert source is not None
    assert place is not None
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        source.rename(place)
        return
    for file in sorted(source.parent.glob(f"{source.name}*"), key=lambda file: file == source):  # the store at last
        if file.name.startswith((f"{source.name}-wal", f"{source.name}-shm", f"{source.name}.")) or file == source:
            file.rename(place.with_name(place.name + file.name.removeprefix(source.name)))
