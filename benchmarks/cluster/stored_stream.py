"""What a stream has: all its messages, by a reader without a group."""

import time

from tests.acceptance.crash.ledger import Key
from tests.acceptance.crash.peer import Peer

QUIET_SECONDS = 1.0
"""When nothing has come for so long, it was all."""


async def read_stream(host: str, port: int, stream: str) -> dict[tuple[int, int], Key]:
    """Read a stream to which nothing is sent any more.

    Args:
        host: where a broker is.
        port: its STOMP port.
        stream: the name.

    Returns:
        The messages, by partition and offset.
    """
    found: dict[tuple[int, int], Key] = {}
    peer = await Peer.connect(host, port)
    try:
        headers = {"destination": f"/stream/{stream}", "id": "1", "ack": "auto", "start": "earliest"}
        peer.send("SUBSCRIBE", headers | {"activemq.prefetchSize": "1000"})
        last = time.monotonic()
        while time.monotonic() - last < QUIET_SECONDS:
            for frame in await peer.receive():
                last = time.monotonic()
                found[int(frame.headers["partition"]), int(frame.headers["offset"])] = Key.of(frame.body)
    finally:
        peer.close()
    return found
