"""What the tests do with a client library, whichever it is."""

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from queue import Empty, Queue
from types import MappingProxyType
from typing import NamedTuple

SECONDS = 60.0
"""How long anything may take that is expected to happen."""

Headers = Mapping[str, str]


class Frame(NamedTuple):
    """What came from the broker; ``CLOSED`` when the connection was."""

    command: str  # ``MESSAGE`` say
    headers: Headers = MappingProxyType({})  # as the library hands them out
    body: bytes = b""
    origin: object = None  # the library's own object


class Client(ABC):
    """A connection of a client library.

    Every method but ``receive`` and ``wait_for`` does what the library does when told so, and returns then; only
    ``send`` waits for the broker's confirmation.
    """

    def __init__(self, version: str) -> None:
        self.version = version  # the version of STOMP it was told to speak
        self._inbox: Queue[Frame] = Queue()
        self._passed: list[Frame] = []
        self._numbers = itertools.count(1)

    # What comes.

    def receive(self) -> Frame:
        return self.wait_for("MESSAGE")

    def bodies(self, count: int) -> list[bytes]:
        return [self.receive().body for _ in range(count)]

    def wait_for(self, command: str, seconds: float = SECONDS) -> Frame:
        for index, frame in enumerate(self._passed):
            if frame.command == command:
                return self._passed.pop(index)
        deadline = time.monotonic() + seconds
        while True:
            try:
                frame = self._inbox.get(timeout=max(deadline - time.monotonic(), 0.001))
            except Empty:
                raise AssertionError(f"no {command} within {seconds} s, but {self._passed}") from None
            if frame.command == command:
                return frame
            self._passed.append(frame)

    def has_come(self, command: str) -> bool:
        while not self._inbox.empty():
            self._passed.append(self._inbox.get())
        return any(frame.command == command for frame in self._passed)

    def settle(self) -> None:
        """Wait until the broker has done everything that was asked of it before."""
        self.send("/queue/settle", b"")

    # What goes.

    @abstractmethod
    def send(self, destination: str, body: bytes | str, headers: Headers | None = None) -> None:
        """Send a message and wait for its receipt."""

    @abstractmethod
    def send_in(self, transaction: str, destination: str, body: bytes) -> None:
        """Send a message in a transaction."""

    @abstractmethod
    def subscribe(self, destination: str, ack: str = "client-individual", headers: Headers | None = None) -> None:
        """Subscribe."""

    @abstractmethod
    def ack(self, message: Frame, transaction: str = "") -> None:
        """Acknowledge."""

    @abstractmethod
    def nack(self, message: Frame) -> None:
        """Reject."""

    @abstractmethod
    def begin(self) -> str:
        """Begin a transaction; its name."""

    @abstractmethod
    def commit(self, transaction: str) -> None:
        """Commit."""

    @abstractmethod
    def abort(self, transaction: str) -> None:
        """Abort."""

    @abstractmethod
    def come_back(self) -> None:
        """After the connection was cut: connect again and subscribe again, if the library does not by itself."""

    @abstractmethod
    def close(self) -> None:
        """Say goodbye and end everything. May be called twice."""
