"""The format version of a store, and the refusal of other ones. Each kind of store has a newest format of its own."""

from quire.errors import StoreOutdated, StoreTooNew

FORMAT_VERSION = 2
"""The format of LMDB that this version of Quire reads and writes. Version 1 had no record checksums."""

SQL_FORMAT = 3
"""The format of SQLite and PostgreSQL: version 3 keeps records in pages."""


def newest_format(url: str) -> int:
    """The format that this version of Quire reads and writes in the store of a URL."""
    return FORMAT_VERSION if url.startswith("lmdb:") else SQL_FORMAT


def check_format(found: int, url: str) -> None:
    """Refuse a store of another format; the URL is shown."""
    expected = newest_format(url)
    if found != expected:
        raise (StoreTooNew if found > expected else StoreOutdated)(
            f"the store {url} has format {found}, and this version of Quire supports {expected}",
            found=found, expected=expected, url=url,
        )  # fmt: skip
