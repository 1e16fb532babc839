"""What other clients do meanwhile: messages go round, each is checked."""

import threading
import time

from quire.client.connection import Connection, connect

PAUSE = 0.005
"""How long it rests between two messages, in seconds: it is to notice trouble, not to make any."""


class Traffic:
    """One client in a thread: it sends a message, waits for the receipt, receives it, acknowledges it, and again.

    Args:
        port: the broker's.
        destination: its queue.

    Attributes:
        rounds: how many messages went round.
        longest: the longest that one took, in seconds.
    """

    def __init__(self, port: int, destination: str) -> None:
        self.rounds = 0
        self.longest = 0.0
        self._port = port
        self._destination = destination
        self._error: BaseException | None = None
        self._begun = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        try:
            self._go_round()
        # Whatever it is, it is raised again where it is waited for.
        except BaseException as error:
            self._error = error
        finally:
            self._begun.set()

    def _go_round(self) -> None:
        with connect("127.0.0.1", self._port, limit=30.0) as connection:
            connection.subscribe(self._destination)
            while not self._ends.wait(PAUSE):
                self._round(connection)
                self._begun.set()
            self._round(connection)
            connection.disconnect()

    def _round(self, connection: Connection) -> None:
        started = time.monotonic()
        body = b"%d" % self.rounds
        connection.send(self._destination, body)
        frame = connection.receive(30.0)
        assert frame is not None, f"message {self.rounds} did not come back"
        assert (frame.body, frame.headers.get("redelivered")) == (body, None)
        connection.ack(frame)
        self.rounds += 1
        self.longest = max(self.longest, time.monotonic() - started)

    def end(self) -> None:
        """End it, after one more message.

        Raises:
            BaseException: what went wrong with it.
        """
        self._ends.set()
        self._thread.join()
        if self._error:
            raise self._error
