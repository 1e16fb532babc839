"""What a broker and its bulk server tell each other at first: a line of JSON each way, over standard input and output.

Not arguments: other users of the machine can see those, and the store's URL may have a password. The broker keeps its
end of the input open as long as it runs, whatever ends it.
"""

import msgspec

from quire.arrow.failure import Failure


class Instructions(msgspec.Struct, frozen=True):
    """What the broker says.

    Attributes:
        store: the URL of its store.
        address: where to listen; port 0 for a free one.
        token: who has it may read.
        idle_limit: how long to wait for a request before ending, in seconds.
        log_format: as the setting.
        log_level: as the setting.
    """

    store: str
    address: str
    token: str
    idle_limit: float
    log_format: str
    log_level: str


class Announcement(msgspec.Struct, frozen=True):
    """What the bulk server says: where it listens, or why it does not."""

    address: str = ""
    error: Failure | None = None
