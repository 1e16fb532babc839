"""From a store's URL to the store, to its path, and to a text that may be shown."""

import re
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote, urlsplit

from quire.errors import InvalidArgument
from quire.store.base import Store, Sync

_SCHEMES = ("lmdb", "sqlite", "postgresql", "memory")
_EXAMPLES = "lmdb:///var/lib/quire, sqlite:///var/lib/quire.db, postgresql://user@host/name or memory:"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")


def store_for_url(url: str, sync: Sync = Sync.ALWAYS, *, readonly: bool = False) -> Store:
    """The store that a URL names, not open yet; only its own back end is imported. ``readonly`` is for LMDB."""
    scheme = url.partition(":")[0]
    if url == "memory:":
        from quire.store.memory import MemoryStore

        return MemoryStore()
    if scheme == "lmdb":
        from quire.store.lmdb import LmdbStore

        return LmdbStore(unquote(_path(url)), sync, readonly=readonly)
    if scheme == "sqlite":
        from quire.store.sqlite import SqliteStore

        return SqliteStore(unquote(_path(url)), sync)
    if scheme in _POSTGRESQL:
        from quire.store.postgresql.store import PostgresqlStore

        return PostgresqlStore(url, sync)
    close = get_close_matches(scheme, _SCHEMES, n=1, cutoff=0.5)
    meant = f"did you mean {'memory:' if close == ['memory'] else close[0]}? " if close else ""
    raise InvalidArgument(f"{scheme!r} is not a kind of store: {meant}write {_EXAMPLES}", scheme=scheme)


def store_path(url: str) -> Path | None:
    """The directory or file of an embedded store; None for a database server's."""
    scheme = url.partition(":")[0]
    if scheme in ("lmdb", "sqlite"):
        return Path(unquote(_path(url)))
    if scheme not in _POSTGRESQL:
        place = shown(url)
        raise InvalidArgument(f"{place!r} has no maintenance: it is not on disk", url=place)
    return None


def store_exists(url: str) -> bool:
    path = store_path(url)
    if path is None:
        from quire.store.postgresql.store import PostgresqlStore

        with closing(PostgresqlStore(url)) as store:
            return store.exists()
    return (path / "data.mdb" if url.startswith("lmdb:") else path).exists()


def stores_of(url: str) -> list[str]:
    """The stores of a broker whose store has this URL: those of its shards, if it has such, else this one alone."""
    path = None if url == "memory:" else store_path(url)
    if path is None or path.exists():
        return [url]
    in_directories = path.name == "store" and url.startswith("lmdb:")
    found = path.parent.glob("shard-*/store") if in_directories else path.parent.glob(f"{path.name}-shard-*")
    shards: dict[int, str] = {}
    for place in found:
        name = (place.parent if in_directories else place).name.removeprefix(f"{path.name}-")
        if (number := name.removeprefix("shard-")).isdecimal():
            shards[int(number)] = place.as_uri().replace("file:", f"{url.partition(':')[0]}:", 1)
    return [shards[number] for number in sorted(shards)] or [url]


def shown(url: str) -> str:
    """A store's URL without its password; a text that is no URL stays as it is."""
    return re.sub(r"([?&]password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url))


def _path(url: str) -> str:
    """The path of a URL, still escaped."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or not parts.path.strip("/"):
        raise InvalidArgument(
            f"{url!r} has no absolute path: write {parts.scheme}:///absolute/path, with three slashes", url=url
        )
    if parts.query or parts.fragment:
        raise InvalidArgument(f"{url!r} has more than a path: write a ? in a path as %3F, and a # as %23", url=url)
    return "/" + parts.path.lstrip("/")
