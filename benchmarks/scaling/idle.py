"""What a cluster takes that has nothing to do, and the memory of connections and destinations that are there."""

import os
import socket
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.scaling import meters
from benchmarks.scaling.bench import BROKERS, Bench, Run
from benchmarks.scaling.costs import Disk, Idle
from benchmarks.stomp_client import Consumer, send_all, send_frame

REST = 6.0
"""How long the cluster is watched, in seconds."""

CONNECTIONS = 1000
DESTINATIONS = 3000
SUBSCRIPTIONS = 1000
"""Of each connection: that is the limit."""
HEART_BEAT = b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,1000\n\n\0"
"""The broker sends to this client each second."""

WRITTEN = 0.7
"""How long the disk is written to each time, in seconds."""


def measure_idle(bench: Bench, rest: Run) -> Idle:
    """Measure memory and heart-beats.

    Args:
        rest: what the cluster took before, in ``REST`` seconds without connections and messages.
    """
    shards = len(BROKERS)
    empty = _memory(bench)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(closing(socket.create_connection(bench.entries[0][:2])))
            connection.sendall(HEART_BEAT)
            connection.recv(4096)
        connected = _memory(bench)
        beating = bench.rest(REST)
    names = [f"many.{number}" for number in range(DESTINATIONS)]
    before = _memory(bench)
    send_all(bench.entries[0], [send_frame(name, b"x") for name in names])
    created = _memory(bench)
    with ExitStack() as stack:
        for first in range(0, DESTINATIONS, SUBSCRIPTIONS):
            wanted = [f"/queue/{name}" for name in names[first : first + SUBSCRIPTIONS]]
            consumer = stack.enter_context(closing(Consumer(bench.entries[0], wanted[0])))
            consumer.subscribe(wanted[1:])
            consumer.confirm()
        subscribed = _memory(bench)
    beats = sum(beating.brokers) - sum(rest.brokers)
    return Idle(
        sum(rest.brokers) / shards / rest.seconds, rest.database / shards / rest.seconds,
        max(0.0, beats / CONNECTIONS / beating.seconds), bench.database_connections() / shards,
        empty / shards, (connected - empty) / CONNECTIONS,
        (created - before) / DESTINATIONS, (subscribed - created) / DESTINATIONS,
    )  # fmt: skip


def measure_disk(directory: Path) -> Disk:
    """Measure synced writes of a mebibyte, as a log has them under load, and of a page."""
    rates = []
    for block in (os.urandom(1 << 20), os.urandom(8192)):
        with tempfile.TemporaryFile(dir=directory) as file:
            began, count = time.monotonic(), 0
            while time.monotonic() - began < WRITTEN:
                file.write(block)
                file.flush()
                os.fdatasync(file.fileno())
                count += 1
            rates.append(count / (time.monotonic() - began))
    return Disk(rates[0] * (1 << 20), rates[1])


def _memory(bench: Bench) -> float:
    return sum([meters.own_memory(pid) for pid in bench.shards])
