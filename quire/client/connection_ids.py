"""The ids of connections: unique, and in the form of ActiveMQ's, which brokers and tools read."""

import itertools
import secrets
import socket

from quire.clock import Clock

_NUMBERS = itertools.count(1)


def connection_id(clock: Clock, prefix: str = "") -> str:
    """A new id.

    Args:
        clock: for the time in it.
        prefix: what it begins with; ``ID`` by default.
    """
    host = socket.gethostname().encode("ascii", "ignore").decode().replace(":", "") or "localhost"
    return f"{prefix or 'ID'}:{host}-{secrets.randbelow(10**9)}-{clock.now_ms()}-{next(_NUMBERS)}:1"
