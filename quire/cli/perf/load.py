"""What a measurement sends and takes, and what its processes do: producers and consumers that cost little themselves.

The connection counts what comes instead of decoding it, so that it costs little beside a broker.
"""

import ctypes
import re
import select
import socket
import ssl
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from multiprocessing.synchronize import Event
from random import Random
from typing import Any, NamedTuple

from quire.client.remote import client_context, remote_error
from quire.clock import Clock, SystemClock
from quire.errors import BrokerUnreachable, QuireError

STAMP = b"sent:"
STAMP_DIGITS = 20
STAMP_EVERY = 100
"""One message in so many carries the time it was sent, at the start of its body: a header would make heads differ, and
brokers may read equal heads faster."""

_PREFETCH = 1000
_NOISE = 1 << 20  # bytes of which random bodies are cut: many more than a store compresses at once


class Target(NamedTuple):
    """A broker's STOMP port, and who we are; without a login if it is empty."""

    host: str
    port: int
    login: str = ""
    passcode: str = ""
    tls: bool = False

    def __repr__(self) -> str:
        return f"Target({self.host!r}, {self.port}, {self.login!r}, tls={self.tls})"


@dataclass(frozen=True, slots=True)
class Load:
    messages: int  # of all producers together
    size: int = 1024  # of a body, in bytes
    producers: int = 1
    consumers: int = 1
    window: int = 256  # how many messages of a producer may wait for a receipt
    receipts: bool = True  # whether every batch asks for a receipt; otherwise only the last one
    batch: int = 1  # how many messages a producer sends together, with one receipt
    persistent: bool = True
    random: bool = False  # whether bodies are random bytes, which no store makes smaller
    ack: str = "client-individual"
    ack_every: int = 1  # the last of so many messages is acknowledged; 0: the last one of each read
    stuck: int = 0  # how many of the first messages are never acknowledged
    rate: float = 0.0  # messages per second of all producers together; 0 for no limit
    backlog: bool = False  # send all messages before the first is received
    latency: bool = False  # one message in flight, from its SEND to its MESSAGE
    kind: str = "queue"  # or ``stream``
    queue: str = field(default_factory=lambda: f"perf.{uuid.uuid4().hex[:12]}")
    subscribe: str = ""  # more header lines of SUBSCRIBE, each with its newline

    @property
    def destination(self) -> str:
        return f"/{self.kind}/{self.queue}"

    @property
    def is_stamped(self) -> bool:
        """Whether bodies tell when they were sent. In a backlog that would measure the backlog."""
        return not self.backlog and self.size >= len(STAMP) + STAMP_DIGITS

    def shares(self) -> list[int]:
        each, rest = divmod(self.messages, self.producers)
        return [each + (number < rest) for number in range(self.producers)]

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        """The SEND frames ``first`` to ``last``, stamped with ``now``, in seconds; the last one asks for a receipt."""
        head = f"SEND\ndestination:{self.destination}\ncontent-length:{self.size}\n"
        start = f"{head}persistent:{'true' if self.persistent else 'false'}\n".encode()
        filler = b"x" * self.size
        plain = b"%b\n%b\0" % (start, filler)
        noise = _noise(self.size) if self.random else b""
        stamp = STAMP + b"%0*d" % (STAMP_DIGITS, round(now * 1e9)) if self.is_stamped else b""
        batch, stamp_every = self.batch, self.batch if self.batch > 1 else STAMP_EVERY
        for number in range(first, first + count):
            asks = (self.receipts and (number + 1) % batch == 0) or number == last
            stamped = number % stamp_every == 0
            if noise:
                at = number * self.size % _NOISE
                filler = noise[at : at + self.size]
            if asks or stamped or noise:
                body = stamp + filler[len(stamp) :] if stamped else filler
                yield b"%b%b\n%b\0" % (start, b"receipt:%d\n" % number if asks else b"", body)
            else:
                yield plain

    def subscription(self) -> bytes:
        return (
            f"SUBSCRIBE\nid:1\ndestination:{self.destination}\nack:{self.ack}\nactivemq.prefetchSize:{_PREFETCH}\n"
            f"prefetch-count:{_PREFETCH}\n{self.subscribe}\n\0"
        ).encode()


@cache
def _noise(size: int) -> bytes:
    """Bytes from which a body can be cut at each place before ``_NOISE``; the same ones each time."""
    return Random(1).randbytes(_NOISE + size)  # noqa: S311 - nothing secret


class Scenario(NamedTuple):
    """A load with a name: what it does, and where it differs from a plain ``Load``."""

    text: str
    changes: dict[str, Any]


SCENARIOS = {
    "confirm": Scenario("persistent, a receipt and an acknowledgement for each message", {}),
    "fire": Scenario("persistent, no receipts", {"receipts": False}),
    "nonpersistent": Scenario("non-persistent, no receipts", {"receipts": False, "persistent": False}),
    "fanin": Scenario("as confirm, with 8 producers and 4 consumers", {"producers": 8, "consumers": 4}),
    "sync": Scenario("8 producers, each waits for the receipt before its next message", {"producers": 8, "window": 1}),
    "cumulative": Scenario(
        "as confirm, with one acknowledgement for all messages of one read", {"ack": "client", "ack_every": 0}
    ),
    "backlog": Scenario("all messages are sent first, then consumed", {"backlog": True}),
    "latency": Scenario("one message at a time, from its SEND to its MESSAGE", {"receipts": False, "latency": True}),
}
"""The scenarios by name. Messages have 1 KiB and a window of 256 unless the options say otherwise."""


ANSWER_LIMIT = 60.0  # how long a broker may take for an answer, in seconds

_CHUNK = 1 << 20


class Link:
    """A connection to any STOMP 1.2 broker; every method may raise ``BrokerUnreachable``.

    Args:
        headers: more header lines of CONNECT, each with its newline.
    """

    def __init__(self, target: Target, headers: str = "") -> None:
        try:
            self._socket = socket.create_connection((target.host, target.port), ANSWER_LIMIT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.tls:
                self._socket = client_context().wrap_socket(self._socket, server_hostname=target.host)
        except OSError as error:
            raise BrokerUnreachable(f"no broker answers at {target.host}:{target.port}: {error}") from error
        self._rest = b""
        login = f"login:{target.login}\npasscode:{target.passcode}\n" if target.passcode else ""
        self.send(f"CONNECT\naccept-version:1.2\nhost:/\n{login}{headers}\n\0".encode())
        self.receive_until(b"CONNECTED\n")

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            # A broker that closes says why before: that is the better error.
            while self.receive(0.1) is not None:
                pass
            raise BrokerUnreachable(f"the connection to the broker is lost: {error}") from error

    def receive(self, seconds: float) -> bytes | None:
        """Take the whole frames that have come: none if the first is not whole yet; None if no bytes came in time."""
        is_there = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not is_there and not select.select([self._socket], [], [], seconds)[0]:
            return None
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise BrokerUnreachable(f"the connection to the broker is lost: {error}") from error
        if not chunk:
            raise BrokerUnreachable("the broker closed the connection")
        data = self._rest + chunk
        end = data.rfind(b"\0") + 1
        whole, self._rest = data[:end], data[end:]
        if b"ERROR\n" in whole:
            raise refusal(whole)
        return whole

    def receive_until(self, wanted: bytes) -> None:
        """Take frames until these bytes are among them; nothing may last longer than ``ANSWER_LIMIT``."""
        data: bytes | None = b""
        while data is not None:
            data = self.receive(ANSWER_LIMIT)
            if data and wanted in data:
                return
        raise BrokerUnreachable(f"the broker did not answer within {ANSWER_LIMIT:g} s")

    def disconnect(self) -> None:
        """Say goodbye and wait until the broker has done all that was sent."""
        self.send(b"DISCONNECT\nreceipt:bye\n\n\0")
        self.receive_until(b"receipt-id:bye\n")

    def close(self) -> None:
        self._socket.close()


def refusal(data: bytes) -> QuireError:
    head = data[data.index(b"ERROR\n") :].partition(b"\n\n")[0].decode("utf-8", "replace")
    headers = dict(line.split(":", 1) for line in head.split("\n")[1:] if ":" in line)
    text = headers.get("message", "the broker sent an error without a message")
    return remote_error(headers.get("code", "protocol-violation"), text, {})


_ACK_ID = re.compile(rb"\nack:([^\n\0]*)\n")
_STAMPED = b"\n\n" + STAMP
_LOOK_AROUND = 0.01  # how often a consumer looks whether others have taken the last message, in seconds


class Slot(ctypes.Structure):
    """What one worker has done, in shared memory: the worker alone writes, and others read without a lock."""

    sent: int  # messages handed to the socket
    receipts: int  # receipts that have come
    received: int  # messages received and acknowledged
    ready: int  # whether it is connected
    started: float  # when it began, in seconds of the monotonic clock
    ended: float  # when the broker had answered everything; 0 before that
    _fields_ = (
        ("sent", ctypes.c_longlong),
        ("receipts", ctypes.c_longlong),
        ("received", ctypes.c_longlong),
        ("ready", ctypes.c_longlong),
        ("started", ctypes.c_double),
        ("ended", ctypes.c_double),
    )


class Pace:
    """How fast a producer may send: so many a second from now on; 0 for as fast as it can."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic()

    def wait(self, sent: int) -> float:
        """How long the next one has to wait when so many were sent, in seconds."""
        return max(0.0, self._began + sent / self._rate - self._clock.monotonic()) if self._rate else 0.0

    def room(self, sent: int, room: int) -> int:
        if not self._rate:
            return room
        due = int((self._clock.monotonic() - self._began) * self._rate) + 1
        return max(0, min(room, due - sent))


def produce(target: Target, load: Load, count: int, slot: Slot, begin: Event) -> list[float]:
    """Send messages from ``begin`` on, and wait until the broker has confirmed them; consumers see the latencies."""
    clock = SystemClock()
    batches, window = ceil(count / load.batch), max(1, load.window // load.batch)
    expected = batches if load.receipts else min(batches, 1)
    with closing(Link(target)) as link:
        slot.ready = 1
        begin.wait()
        slot.started = clock.monotonic()
        pace = Pace(load.rate / load.producers / load.batch, clock)
        sent = receipts = 0
        while receipts < expected:
            open_window = min(batches - sent, window - (sent - receipts) if load.receipts else window)
            room = pace.room(sent, open_window)
            if room > 0:
                first, sent = sent * load.batch, sent + room
                end = min(sent * load.batch, count)
                link.send(b"".join(load.frames(first, end - first, count - 1, clock.monotonic())))
                slot.sent = end
            if not load.receipts and sent < batches:
                time.sleep(pace.wait(sent))
                continue
            # Then it is the pace that holds it, and not the window.
            may_send = room < open_window
            came = link.receive(pace.wait(sent) if may_send else ANSWER_LIMIT)
            if came is not None:
                slot.receipts = receipts = receipts + came.count(b"RECEIPT\n")
            elif not may_send:
                raise BrokerUnreachable(f"the broker confirmed nothing for {ANSWER_LIMIT:g} s")
    slot.ended = clock.monotonic()
    return []


def consume(target: Target, load: Load, slots: Sequence[Slot], slot: Slot) -> list[float]:
    """Receive until all consumers together have all messages; returns the latencies of stamped ones, in seconds."""
    clock = SystemClock()
    latencies: list[float] = []
    unacknowledged: list[bytes] = []
    with closing(Link(target)) as link:
        slot.started = clock.monotonic()
        link.send(load.subscription())
        slot.ready = 1
        while sum([other.received for other in slots]) < load.messages:
            data = link.receive(_LOOK_AROUND) or b""
            ids = _ACK_ID.findall(data)
            if not ids:
                continue
            if load.is_stamped:
                now = clock.monotonic()
                latencies += [now - sent_at for sent_at in stamps(data)]
            unacknowledged += ids[max(0, load.stuck - slot.received) :]
            slot.received += len(ids)
            together = load.ack_every or max(1, len(unacknowledged))
            due = unacknowledged[together - 1 :: together]
            link.send(b"".join([b"ACK\nid:%b\n\n\0" % id for id in due]))
            unacknowledged = unacknowledged[len(due) * together :]
        link.send(b"".join([b"ACK\nid:%b\n\n\0" % id for id in unacknowledged[-1:]]))
        link.disconnect()
    slot.ended = clock.monotonic()
    return latencies


def stamps(data: bytes) -> Iterator[float]:
    found = data.find(_STAMPED)
    while found >= 0:
        start = found + len(_STAMPED)
        yield int(data[start : start + STAMP_DIGITS]) / 1e9
        found = data.find(_STAMPED, start)
