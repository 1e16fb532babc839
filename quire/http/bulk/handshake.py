"""What a broker and its bulk server tell each other at first: a line of JSON each way, over standard input and output.

Not arguments: other users of the machine can see those, and the store's URL may have a password. The broker keeps its
end of the input open as long as it runs, whatever ends it.
"""

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


class Announcement(msgspec.Struct, frozen=True):
    """What the bulk server says: where it listens, or why it does not."""

    address: str = ""
    error: Failure | None = None
