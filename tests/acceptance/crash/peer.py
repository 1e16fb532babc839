"""A STOMP 1.2 connection for load: it pipelines, and it is lost when its broker is killed."""

import asyncio
import math
import time
from typing import NamedTuple, Self

from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.frames import SERVER_COMMANDS, encode_frame

TICK = 0.1
"""How long ``receive`` waits, in seconds: a client has to notice now and then that it is to end."""


LIMITS = Limits(max_headers=10_000, max_line=1024 * 1024, max_body=2**31)
"""What a broker may send: whether that is right is for the tests to say."""


class Frame(NamedTuple):
    """What the broker sent.

    Attributes:
        command: ``MESSAGE`` say.
        headers: unescaped; of a repeated header the first counts.
        body: the body.
    """

    command: str
    headers: dict[str, str]
    body: bytes


class Lost(Exception):
    """The connection is gone.

    Args:
        code: the error's code if the broker sent one.
    """

    def __init__(self, code: str = "") -> None:
        super().__init__(code)
        self.code = code


class Peer:
    """A connection; made by ``connect``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence = silence
        self._heard = time.monotonic()
        self._decoder = Decoder(LIMITS, SERVER_COMMANDS)
        self._output: list[bytes] = []

    @classmethod
    async def connect(cls, host: str, port: int, silence: float = math.inf, client_id: str = "") -> Self:
        """Connect and wait for the broker's answer.

        Args:
            host: where the broker is.
            port: its STOMP port.
            silence: after how many seconds without a sign of life it counts as gone; a third of it for the connection.
            client_id: that of the client; none if empty.

        Raises:
            Lost: there is no broker, or it refuses.
        """
        try:
            async with asyncio.timeout(None if math.isinf(silence) else silence / 3):
                peer = cls(*await asyncio.open_connection(host, port), silence)
        except OSError:
            raise Lost from None
        beat = 0 if math.isinf(silence) else int(silence * 1000 / 4)
        headers = {"accept-version": "1.2", "host": "test", "heart-beat": f"0,{beat}"}
        peer.send("CONNECT", headers | ({"client-id": client_id} if client_id else {}))
        try:
            while not await peer.receive():
                pass
        except BaseException:
            peer.close()
            raise
        return peer

    def send(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a frame; it leaves with the next ``receive``."""
        self._output.append(encode_frame(command.encode(), headers, body))

    async def receive(self) -> list[Frame]:
        """Wait a moment for frames.

        Raises:
            Lost: the broker is gone, or has sent an error.
        """
        output, self._output = b"".join(self._output), []
        try:
            self._writer.write(output)
            data = await asyncio.wait_for(self._reader.read(1 << 16), TICK)
        except TimeoutError:
            if time.monotonic() - self._heard > self._silence:
                raise Lost from None
            return []
        except OSError:
            raise Lost from None
        if not data:
            raise Lost
        self._heard = time.monotonic()
        frames = []
        self._decoder.receive(data)
        while events := self._decoder.next_events():
            for head, _, body in events:
                frame = Frame(head.command.decode(), head.headers, bytes(body))
                if frame.command == "ERROR":
                    raise Lost(frame.headers["code"])
                frames.append(frame)
        return frames

    def close(self) -> None:
        """Close without a word."""
        self._writer.close()
