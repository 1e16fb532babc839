"""Where the shards of a broker are, and how a store that was one is divided among them.

The store that is divided becomes that of shard 0, and nothing in it moves: what lies elsewhere by its name is pinned to
shard 0, as if an operator had placed it there. What is made later is spread by its name. A queue that was emptied and
deleted can be placed anew, with ``quire cluster place --unpin``.

Every step can be taken again: if the process is lost meanwhile, the same command goes on.
"""

from contextlib import closing
from pathlib import Path

from quire.broker.schedule import KIND as SCHEDULE
from quire.broker.topics.durables import MARKS as PATTERNS
from quire.broker.transactions.xa import PREFIX as PREPARED
from quire.cluster.cluster_map import FRONT, SPREAD, PinRow, Placement, shard_of_key
from quire.cluster.directory import Directory
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidSettings
from quire.server.cluster.kept_pins import mark_of
from quire.server.cluster.shard_process import Serve
from quire.settings import Settings, security_file, split_address, store_url
from quire.store.base import Store, WriteBatch
from quire.store.maintenance.open_store import open_for_writing
from quire.store.urls import store_exists, store_path

EMBEDDED = "embedded"
"""Stands for the databases of the shards of one machine: each has an embedded store of its own."""


def local_directory(settings: Settings) -> Path:
    """The file that says how many shards a data directory has, and where they are."""
    return Path(settings.store.data) / "shards.db"


def local_database(settings: Settings) -> str:
    """The URL of the database in which a broker keeps what there is to know of its shards."""
    return f"sqlite:///{local_directory(settings).resolve()}"


def local_flags(settings: Settings) -> dict[str, object]:
    """The settings that make a broker one of several shards on this machine; none for a broker that is one process."""
    is_formed, wanted = local_directory(settings).exists(), settings.broker.shards
    if not is_formed and wanted <= 1:
        return {}
    url, data = store_url(settings), settings.store.data
    if url.startswith("postgres"):
        text = "shards of one machine have embedded stores: with PostgreSQL, set cluster.store: quire cluster start"
        raise InvalidSettings(text, key="broker.shards", value=wanted)
    if url != "memory:" and store_exists(url):
        what = "was not divided to its end" if is_formed else "is of one process"
        text = f"the store in {data} {what}: divide it with quire store split --shards {max(wanted, 2)}"
        raise InvalidSettings(text, key="broker.shards", value=wanted)
    flags = {"cluster.store": local_database(settings), "cluster.name": settings.broker.name}
    return flags | {"cluster.shards": max(wanted, 1)}


def local_shard_url(settings: Settings, shard: int) -> str:
    url = settings.store.url
    if url == "memory:":
        return url
    if not url:
        return (Path(settings.store.data) / f"shard-{shard}" / "store").resolve().as_uri().replace("file:", "lmdb:", 1)
    return f"{url}-shard-{shard}"


def serve_shard(
    settings: Settings, stores: tuple[str, ...], shards: int, shard: int, addresses: dict[str, str]
) -> Serve:  # fmt: skip
    """What the process of a shard is told; the stores are used in turn, the addresses are by the key of the setting."""
    flags: dict[str, object] = {"console.enabled": False, **addresses}
    data = Path(settings.store.data)
    if shard == FRONT:
        flags |= {"store.url": "memory:", "store.data": str(data / "front"), "backup.at": ""}
    else:
        name = f"shard-{shard}"
        backups = str(Path(settings.backup.directory) / name)
        is_local = stores == (EMBEDDED,)
        url = local_shard_url(settings, shard) if is_local else shard_url(stores[shard % len(stores)], shard)
        flags |= {"store.url": url, "store.data": str(data / name), "backup.directory": backups}
        if is_local:
            flags |= _shares(settings, shards)
        flags |= {"bulk.address": _bulk_address(settings, shard)}
    host, port = split_address(settings.cluster.address)
    host = f"[{host}]" if ":" in host else host
    first = port + 2 * (shard + 1) if port else 0  # the front has the first two
    return Serve(shard, flags, f"{host}:{first}", f"{host}:{first + 1 if port else 0}")


def _shares(settings: Settings, shards: int) -> dict[str, object]:
    """The share of each shard of one machine in what one broker may use of it."""
    limits = {"memory.limit": settings.memory.limit, "spool.limit": settings.spool.limit}
    return {key: max(limit // shards, 1) for key, limit in limits.items()}


def _bulk_address(settings: Settings, shard: int) -> str:
    """Where the bulk server of a shard listens: with a fixed port, each process of each shard has one of its own."""
    host, _, port = settings.bulk.address.rpartition(":")
    return f"{host}:{int(port) + shard * settings.bulk.processes if int(port) else 0}"


def shard_url(url: str, shard: int) -> str:
    """The URL of a shard's store: a schema of its own in a database."""
    return f"{url}{'&' if '?' in url else '?'}schema=quire_shard_{shard}"


def split(settings: Settings, shards: int) -> int:
    """Divide a store that no broker uses; how many placement keys were pinned to shard 0."""
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
