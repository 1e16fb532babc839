"""The first lines between broker and bulk server, in JSON over pipes: arguments would show a password of the store."""

import msgspec

from quire.arrow.failure import Failure


class Instructions(msgspec.Struct, frozen=True):
    """What the broker says."""

    store: str  # the URL of its store
    address: str  # where to listen; port 0 for a free one
    token: str  # who has it may read
    idle_limit: float  # how long to wait for a request before ending, in seconds
    log_format: str  # as the setting
    log_level: str  # as the setting
    tls: dict[str, str] = {}  # the settings of the section
    limits: dict[str, int] = {}  # the same


class Announcement(msgspec.Struct, frozen=True):
    """What the bulk server says: where it listens, or why it does not."""

    address: str = ""
    error: Failure | None = None
