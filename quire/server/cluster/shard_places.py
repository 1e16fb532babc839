"""Where the shards of a broker are: their stores, their data directories, their addresses."""

from pathlib import Path

from quire.cluster.cluster_map import FRONT
from quire.errors import InvalidSettings
from quire.server.cluster.shard_messages import Serve
from quire.settings import Settings, split_address, store_url
from quire.store.urls import store_exists

EMBEDDED = "embedded"
"""Stands for the databases of the shards of one machine: each has an embedded store of its own."""


def local_directory(settings: Settings) -> Path:
    """The file that says how many shards a data directory has, and where they are."""
    return Path(settings.store.data) / "shards.db"


def local_database(settings: Settings) -> str:
    """The URL of the database in which a broker keeps what there is to know of its shards."""
    return f"sqlite:///{local_directory(settings).resolve()}"


def local_flags(settings: Settings) -> dict[str, object]:
    """The settings that make a broker one of several shards on this machine; none for a broker that is one process.

    Raises:
        InvalidSettings: what the data directory has does not fit the settings.
    """
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
    """The URL of the embedded store of a shard."""
    url = settings.store.url
    if url == "memory:":
        return url
    if not url:
        return (Path(settings.store.data) / f"shard-{shard}" / "store").resolve().as_uri().replace("file:", "lmdb:", 1)
    return f"{url}-shard-{shard}"


def serve_shard(
    settings: Settings, stores: tuple[str, ...], shards: int, shard: int, addresses: dict[str, str]
) -> Serve:  # fmt: skip
    """What the process of a shard is told.

    Args:
        settings: those of the broker.
        stores: the databases of the shards, used in turn.
        shards: how many there are.
        shard: its number; ``FRONT`` for none.
        addresses: where clients reach the broker, by the key of the setting.
    """
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
