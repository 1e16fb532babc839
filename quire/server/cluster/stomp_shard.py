"""What one STOMP client has at one shard: a virtual connection to its owner, with a session of the client there."""

from collections.abc import Callable
from typing import Protocol

from quire.cluster.virtual_connection import VirtualConnection
from quire.errors import QuireError
from quire.protocols.stomp.passed_frames import ServerFrames, header_of


class Client(Protocol):
    """The relay of the client, as a shard sees it."""

    def connected(self, shard: "StompShard") -> None:
        """The owner has accepted the client."""

    def passes(self, frames: bytes) -> None:
        """The owner says something to the client."""

    def refused(self, frame: bytes) -> None:
        """The owner has told the client of an error: its connection ends."""

    def charges(self, size: int) -> None:
        """So many bytes more, or fewer, have come of frames that are not whole."""

    def owes(self, shard: "StompShard", size: int) -> None:
        """So many bytes have come, and are to be written to the client."""

    def shows(self, shard: "StompShard", frame: bytes) -> bytes:
        """A MESSAGE frame of a subscription at several shards is about to be passed on; nothing if it is not."""

    def drained(self) -> None:
        """The shard takes input again."""

    def lost(self, shard: "StompShard", error: QuireError | None) -> None:
        """The virtual connection is over."""


class StompShard:
    """One client at one shard.

    Attributes:
        number: of the shard.
        connection: to its owner.
        is_connected: whether the owner has accepted the client.
        owed: so many bytes were written to the client, and no credit was given for them.
        frames: what has come, as frames.
    """

    connection: VirtualConnection

    def __init__(self, client: Client, number: int) -> None:
        self.number = number
        self.is_connected = False
        self.owed = 0
        self.frames = ServerFrames()
        self._client = client
        self._answers: dict[bytes, tuple[Callable[[], None], bytes | None]] = {}
        self._next_answer = 0

    def when_answered(self, call: Callable[[], None], receipt: bytes | None = None) -> bytes:
        """The receipt to ask for, so that a call is made when the owner has done what a frame says.

        Args:
            receipt: the one that the client asks for.
        """
        self._next_answer += 1
        asked = b"quire-relay-%d" % self._next_answer
        self._answers[asked] = call, receipt
        return asked

    # The virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        """The owner says something."""
        before = self.frames.buffered
        try:
            for frames in self.frames.receive(data):
                self._take(frames)
        except QuireError as error:
            self.connection.abort()
            self._client.lost(self, error)
        if self.connection.is_closed:
            return
        if self.frames.buffered != before:
            self._client.charges(self.frames.buffered - before)
        self._client.owes(self, len(data))

    def drained(self) -> None:
        """The owner takes input again."""
        self._client.drained()

    def ended(self, error: QuireError | None) -> None:
        """The virtual connection is over."""
        self._client.lost(self, error)

    def _take(self, frames: bytes) -> None:
        client = self._client
        if frames.startswith(b"MESSAGE"):
            if self.frames.one_by_one:
                frames = client.shows(self, frames)
            if frames:
                client.passes(frames)
        elif frames.startswith(b"RECEIPT"):
            answer = self._answers.pop(header_of(frames, b"receipt-id") or b"", None)
            if answer is None:
                client.passes(frames)
            else:
                answer[0]()
        elif frames.startswith(b"CONNECTED"):
            self.is_connected = True
            client.connected(self)
        else:
            client.refused(self._as_asked(frames))

    def _as_asked(self, error: bytes) -> bytes:
        """An ERROR frame with the receipt that the client has asked for, instead of the relay's own."""
        asked = header_of(error, b"receipt-id")
        answer = None if asked is None else self._answers.get(asked)
        if asked is None or answer is None:
            return error
        line = b"" if answer[1] is None else b"receipt-id:" + answer[1] + b"\n"
        return error.replace(b"receipt-id:" + asked + b"\n", line, 1)
