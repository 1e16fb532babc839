"""What the processes of a stream's load do: producers and members of a group that cost little themselves."""

import re
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.synchronize import Event

from quire.cli.perf.link import ANSWER_LIMIT, Link
from quire.cli.perf.load import Target
from quire.cli.perf.stream_load import StreamLoad
from quire.cli.perf.workers import Pace, Slot, stamps
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable

_ACK_ID = re.compile(rb"\nack:([^\n\0]*)\n")
_PREFETCH = 1000
_LOOK_AROUND = 0.01
"""How often a member looks whether others have taken the last message, in seconds."""


def append(target: Target, load: StreamLoad, count: int, slot: Slot, begin: Event) -> list[float]:
    """Send messages in batches, and wait until the broker has confirmed them.

    Args:
        target: the broker.
        load: what to send.
        count: how many of it.
        slot: where to tell how far it is.
        begin: when to begin.

    Returns:
        No latencies: consumers see them.
    """
    clock = SystemClock()
    batches, window = load.batches(count), max(1, load.window // load.batch)
    with closing(Link(target)) as link:
        slot.ready = 1
        begin.wait()
        slot.started = clock.monotonic()
        pace = Pace(load.rate / load.producers / load.batch, clock)
        sent = confirmed = 0
        while confirmed < batches:
            open_window = min(batches - sent, window - (sent - confirmed))
            room = pace.room(sent, open_window)
            if room > 0:
                now = clock.monotonic()
                link.send(b"".join([load.batch_frames(index, count, now) for index in range(sent, sent + room)]))
                sent += room
                slot.sent = min(sent * load.batch, count)
            # Then it is the pace that holds it, and not the window.
            may_send = room < open_window
            came = link.receive(pace.wait(sent) if may_send else ANSWER_LIMIT)
            if came is not None:
                confirmed += came.count(b"RECEIPT\n")
                slot.receipts = confirmed
            elif not may_send:
                raise BrokerUnreachable(f"the broker confirmed nothing for {ANSWER_LIMIT:g} s")
    slot.ended = clock.monotonic()
    return []


def take_part(target: Target, load: StreamLoad, slots: Sequence[Slot], slot: Slot) -> list[float]:
    """Be a member of the group: receive and acknowledge, until all members together have what the load has.

    Args:
        target: the broker.
        load: what to expect.
        slots: all workers' slots.
        slot: where to tell how far it is.

    Returns:
        How long the stamped messages were on their way, in seconds.
    """
    clock = SystemClock()
    latencies: list[float] = []
    open_ids: list[bytes] = []
    together = load.batch if load.ack == "client" else 1
    with closing(Link(target)) as link:
        slot.started = clock.monotonic()
        link.send(
            f"SUBSCRIBE\nid:1\ndestination:{load.path}\ngroup:{load.group}\nstart:earliest\nack:{load.ack}\n"
            f"prefetch-count:{_PREFETCH}\n\n\0".encode()
        )
        slot.ready = 1
        keeps_first = load.stuck
        while sum([other.received for other in slots]) < load.messages:
            data = link.receive(_LOOK_AROUND) or b""
            ids = _ACK_ID.findall(data)
            if not ids:
                continue
            now = clock.monotonic()
            latencies += [now - sent_at for sent_at in stamps(data)]
            slot.received += len(ids)
            open_ids += ids[keeps_first:]
            keeps_first = False
            due = open_ids[together - 1 :: together]
            link.send(b"".join([b"ACK\nid:%b\n\n\0" % id for id in due]))
            open_ids = open_ids[len(due) * together :]
        link.send(b"".join([b"ACK\nid:%b\n\n\0" % id for id in open_ids[-1:]]))
        link.disconnect()
    slot.ended = clock.monotonic()
    return latencies
