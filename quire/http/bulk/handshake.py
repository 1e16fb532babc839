"""The lines between broker and bulk server, in JSON over pipes: arguments would show a password of the store."""

import msgspec

from quire.arrow.failure import Failure


class Instructions(msgspec.Struct, frozen=True):
    """What the broker says."""

    store: str  # the URL of its store
    address: str  # where to listen; port 0 for a free one
    secret: str  # what signs the tokens of readers
    idle_limit: float  # how long to wait for a request before ending, in seconds
    log_format: str  # as the setting
    log_level: str  # as the setting
    tls: dict[str, str] = {}  # the settings of the section
    limits: dict[str, int] = {}  # the same


class Announcement(msgspec.Struct, frozen=True):
    """What the bulk server says: where it listens, or why it does not."""

    address: str = ""
    error: Failure | None = None


class Question(msgspec.Struct, frozen=True):
    """What the bulk server asks: which of some destinations, ``stream://events``, a reader may read."""

    number: int  # the reply has it too
    reader: str
    destinations: list[str]


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The broker's answer, one for each destination; None if it does not know the reader, or not any more."""

    number: int
    allowed: list[bool] | None = None


class TlsRead(msgspec.Struct, frozen=True, tag=True):
    """The broker has read the settings of TLS again."""

    tls: dict[str, str]


class RightsChanged(msgspec.Struct, frozen=True, tag=True):
    """The broker's users, rules or tokens have changed."""


News = Reply | TlsRead | RightsChanged
"""What the broker says after its instructions."""
