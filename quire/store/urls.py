"""From a store's URL to the store."""

from urllib.parse import unquote, urlsplit

from quire.errors import InvalidArgument
from quire.store.base import Store, Sync

_EXAMPLES = "lmdb:///var/lib/quire, sqlite:///var/lib/quire.db, postgresql+psycopg://user@host/name or memory:"


def store_for_url(url: str, sync: Sync = Sync.ALWAYS) -> Store:
    """Make the store a URL names. It is not opened. Only the back end that is asked for is imported.

    Args:
        url: ``lmdb:///dir`` or ``sqlite:///file`` (absolute paths), ``postgresql+psycopg://...`` as SQLAlchemy takes
            it, or ``memory:``.
        sync: when commits are on disk.

    Raises:
        InvalidArgument: it is no URL of a store, or its path is not absolute.
    """
    scheme = url.partition(":")[0]
    if url == "memory:":
        from quire.store.memory import MemoryStore

        return MemoryStore()
    if scheme == "lmdb":
        from quire.store.lmdb import LmdbStore

        return LmdbStore(_path(url), sync)
    if scheme in ("sqlite", "postgresql+psycopg"):
        from quire.store.sql.store import SqlStore

        return SqlStore(f"sqlite://{_path(url)}" if scheme == "sqlite" else url, sync)
    raise InvalidArgument(f"{scheme!r} is no kind of store: write {_EXAMPLES}", url=url)


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.path.strip("/") == "":
        raise InvalidArgument(
            f"{url!r} names no absolute path: write {parts.scheme}:///absolute/path, with three slashes", url=url
        )
    return "/" + unquote(parts.path).lstrip("/")
