"""The format version of a store, and the refusal of other ones."""

from quire.errors import StoreOutdated, StoreTooNew

FORMAT_VERSION = 2
"""The format this version of Quire reads and writes. Version 1 had no record checksums."""


def check_format(found: int, url: str) -> None:
    """Refuse a store of another format; the URL is shown."""
    if found != FORMAT_VERSION:
        raise (StoreTooNew if found > FORMAT_VERSION else StoreOutdated)(
            f"the store {url} has format {found}, and this version of Quire supports {FORMAT_VERSION}",
            found=found, expected=FORMAT_VERSION, url=url,
        )  # fmt: skip
