"""What the processes of a measurement do: producers and consumers that cost little themselves."""

import ctypes
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import ceil
from multiprocessing.synchronize import Event

from quire.cli.perf.link import ANSWER_LIMIT, Link
from quire.cli.perf.load import STAMP, STAMP_DIGITS, Load, Target
from quire.clock import Clock, SystemClock
from quire.errors import BrokerUnreachable

_ACK_ID = re.compile(rb"\nack:([^\n\0]*)\n")
_STAMPED = b"\n\n" + STAMP
_LOOK_AROUND = 0.01
"""How often a consumer looks whether others have taken the last message, in seconds."""


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
        """How many of so many may be sent now, when so many were sent."""
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
    """When the stamped messages among some frames were sent, in seconds."""
    found = data.find(_STAMPED)
    while found >= 0:
        start = found + len(_STAMPED)
        yield int(data[start : start + STAMP_DIGITS]) / 1e9
        found = data.find(_STAMPED, start)
