"""Where the shards of a broker are: their stores, their data directories, their addresses."""

from pathlib import Path

from quire.cluster.cluster_map import FRONT
from quire.server.cluster.shard_messages import Serve
from quire.settings import Settings, split_address


def serve_shard(settings: Settings, stores: tuple[str, ...], shard: int, addresses: dict[str, str]) -> Serve:
    """What the process of a shard is told.

    Args:
        settings: those of the broker.
        stores: the databases of the shards, used in turn.
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
        url = shard_url(stores[shard % len(stores)], shard)
        flags |= {"store.url": url, "store.data": str(data / name), "backup.directory": backups}
        flags |= {"bulk.address": _bulk_address(settings, shard)}
    host, port = split_address(settings.cluster.address)
    host = f"[{host}]" if ":" in host else host
    first = port + 2 * (shard + 1) if port else 0  # the front has the first two
    return Serve(shard, flags, f"{host}:{first}", f"{host}:{first + 1 if port else 0}")


def _bulk_address(settings: Settings, shard: int) -> str:
    """Where the bulk server of a shard listens: with a fixed port, each process of each shard has one of its own."""
    host, _, port = settings.bulk.address.rpartition(":")
    return f"{host}:{int(port) + shard * settings.bulk.processes if int(port) else 0}"


def shard_url(url: str, shard: int) -> str:
    """The URL of a shard's store: a schema of its own in a database."""
    return f"{url}{'&' if '?' in url else '?'}schema=quire_shard_{shard}"
