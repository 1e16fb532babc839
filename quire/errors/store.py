"""Stores."""

from quire.errors.quire_error import QuireError


class StoreError(QuireError):
    """The store failed; the base of all errors of stores."""

    code = "store-failed"


class StoreFull(StoreError):
    """There is no space for a write. What was stored before is unchanged."""

    code = "store-full"


class StoreCorrupt(StoreError):
    """A record is not as it was written."""

    code = "store-corrupt"


class StoreLocked(StoreError):
    """Another broker has locked the store."""

    code = "store-locked"


class StoreOutdated(StoreError):
    """The store has an older format and must be migrated."""

    code = "store-outdated"


class StoreTooNew(StoreError):
    """The store has a newer format than this version supports."""

    code = "store-too-new"


class StoreUnreachable(StoreError):
    """The store cannot be opened."""

    code = "store-unreachable"


class StoreUnreadable(StoreUnreachable):
    """What is in the place of the store is damaged as a whole, or is no store of Quire."""

    code = "store-unreadable"


class DirectoryUnusable(StoreUnreachable):
    """A directory or file that the broker needs cannot be made or written."""

    code = "directory-unusable"
