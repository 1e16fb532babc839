"""A peer that sends whatever it is told to, what other clients do meanwhile, and what the system says of the broker."""

import contextlib
import json
import select
import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from quire.client import AckMode, Queue
from quire.client.sync import Consumer, Producer, connect
from quire.protocols.stomp.decoder import Decoder
from quire.protocols.stomp.frames import SERVER_COMMANDS
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.crash.load import LIMITS

SECONDS = 60.0
"""How long the broker may take for any answer on a busy machine; how long it takes is measured by the benchmarks."""

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"


class Peer:
    """A TCP connection to a broker. A context manager."""

    def __init__(self, port: int, opening: bytes = b"", receive_buffer: int = 0) -> None:
        self._socket = socket.socket()
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(SECONDS)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(opening)

    def send(self, data: bytes) -> bool:
        """Send it all; False if the broker has closed the connection."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def send_for(self, data: bytes, seconds: float) -> int:
        """Send again and again, for a time or until the broker takes no more; how many octets."""
        self._socket.settimeout(0.1)
        sent, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                sent += self._socket.send(data)
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        self._socket.settimeout(SECONDS)
        return sent

    def end_of_input(self) -> None:
        with contextlib.suppress(OSError):  # the broker was quicker
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def has_answer(self) -> bool:
        """Whether something has come, or the broker has closed."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def read(self) -> bytes:
        data = self._socket.recv(65536)
        assert data, "the broker has closed the connection"
        return data

    def until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            data += self.read()
        return data

    def rest(self) -> bytes:
        data = b""
        try:
            while chunk := self._socket.recv(65536):
                data += chunk
        except ConnectionResetError:
            pass  # it closed without reading what was still sent to it
        return data

    def refusal(self) -> str:
        """The code of the ERROR behind which the broker closes; ``closed`` if it closes without a word."""
        data = self.rest()
        decoder = Decoder(LIMITS, SERVER_COMMANDS)
        decoder.receive(data)
        frames = []
        while events := decoder.next_events():
            frames += [head for head, _, _ in events]
        errors = [head.headers["code"] for head in frames if head.command == b"ERROR"]
        assert len(errors) <= 1
        assert not errors or frames[-1].command == b"ERROR"
        return errors[0] if errors else "closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


PAUSE = 0.005
"""How long it rests between two messages, in seconds: it is to notice trouble, not to make any."""


class Traffic:
    """One client in a thread: it sends a message, waits for the confirmation, receives, acknowledges, and again."""

    def __init__(self, url: str, queue: str) -> None:
        self.rounds = 0  # how many messages went round
        self._url = url  # the broker's
        self._queue = Queue(queue)
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
        with connect(self._url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            producer, consumer = session.producer(self._queue), session.consumer(self._queue)
            while not self._ends.wait(PAUSE):
                self._round(producer, consumer)
                self._begun.set()
            self._round(producer, consumer)

    def _round(self, producer: Producer, consumer: Consumer) -> None:
        body = b"%d" % self.rounds
        producer.send(body)
        message = consumer.receive(SECONDS)
        assert message is not None, f"message {self.rounds} did not come back"
        assert (message.body, message.redelivered) == (body, False)
        message.acknowledge()
        self.rounds += 1

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        if self._error:
            raise self._error


class Vitals:
    """A broker's connections and memory, from Linux's ``/proc``."""

    def __init__(self, broker: BrokerProcess) -> None:
        facts = json.loads((broker.data / "broker.json").read_text())
        self._broker = broker
        self._process = Path("/proc") / str(facts["pid"])
        port = int(facts["stomp"].rpartition(":")[2])
        self._local = f"0100007F:{port:04X}"

    @property
    def connections(self) -> int:
        """How many STOMP connections it holds open."""
        table = (self._process / "net" / "tcp").read_text().splitlines()[1:]
        rows = [line.split() for line in table]
        # 0A: the listener itself. Without an inode no process has it: the system is only ending it.
        return sum(row[1] == self._local and row[3] != "0A" and row[9] != "0" for row in rows)

    def wait_for_connections(self, most: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (count := self.connections) > most:
            assert time.monotonic() < deadline, f"{count} connections after {seconds} s, not {most}"
            time.sleep(0.02)

    @property
    def anonymous_memory(self) -> int:
        return self._broker.rss_anon()
