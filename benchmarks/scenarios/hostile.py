"""The scenario of the hostile clients: a client that behaves must not notice the bad input of others."""

import ctypes
import heapq
import multiprocessing
import random
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from statistics import median
from typing import ClassVar

from benchmarks.load import send
from benchmarks.rig import START_LIMIT
from benchmarks.scenarios.scenario import HEADERS, Finding, Scenario, at_least, at_most
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import measure
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.message import MESSAGE_OVERHEAD

SILENT_CONNECTIONS = 1000
SLOW_SENDERS = 50
SLOW_RECEIVERS = 5
MAX_BODY = 1_000_000
"""The largest body the attacked broker takes, in bytes; attackers go beyond it."""

Steps = Iterator[float]

_HELLO = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
_SEND = b"SEND\ndestination:/queue/perf.attack\n"
_OPENED_AT_ONCE = 20
_OPEN_REST = 0.05
_LONGEST_REST = 0.05
_RANDOM = random.Random(0)


class Tally(ctypes.Structure):
    """What attackers saw, in shared memory: their process writes, and the scenario reads.

    Connections opened and refused, ERROR frames, connections that the broker closed, silent connections open now,
    passwords tried.
    """

    connections: int
    refused: int
    errors: int
    closes: int
    silent: int
    guesses: int
    _fields_ = tuple(
        (name, ctypes.c_longlong) for name in ("connections", "refused", "errors", "closes", "silent", "guesses")
    )


class Attacker:
    """One connection to the broker. Its calls never wait and never fail."""

    def __init__(self, target: Target, tally: Tally, source: str = "") -> None:
        self._tally = tally
        self._socket = socket.socket()
        if source:
            self._socket.bind((source, 0))
        self.is_open = False
        try:
            self._socket.connect((target.host, target.port))
        except OSError:
            tally.refused += 1
            self._socket.close()
            return
        self._socket.setblocking(False)
        self.is_open = True
        tally.connections += 1

    def send(self, data: bytes) -> None:
        if not self.is_open:
            return
        try:
            self._socket.send(data)
        except BlockingIOError:
            return
        except OSError:
            self._closed_by_broker()

    def look(self) -> None:
        while self.is_open:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._tally.errors += data.count(b"ERROR\n")
            if not data:
                self._closed_by_broker()

    def close(self) -> None:
        self.is_open = False
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def _closed_by_broker(self) -> None:
        self._tally.closes += 1
        self.close()


def attack(target: Target, bait: str, tally: Tally, stop: Event) -> None:
    take_turns(_attacks(target, bait, tally), stop)


def take_turns(attacks: list[Steps], stop: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clock = SystemClock()
    turns = [(clock.monotonic(), number, steps) for number, steps in enumerate(attacks)]
    heapq.heapify(turns)
    while not stop.is_set():
        due, number, steps = turns[0]
        rest = due - clock.monotonic()
        if rest > 0:
            stop.wait(min(rest, _LONGEST_REST))
        else:
            heapq.heapreplace(turns, (clock.monotonic() + next(steps), number, steps))


def _attacks(target: Target, bait: str, tally: Tally) -> list[Steps]:
    too_long = _HELLO + _SEND + b"name:" + b"x" * 60_000
    too_many = _HELLO + _SEND + b"".join(b"h%d:x\n" % number for number in range(5000))
    too_large = _HELLO + _SEND + b"content-length:1000000000000\n\n" + b"x" * 1000
    half = _HELLO + _SEND + b"content-length:1000\n\n" + b"x" * 500
    return [
        _bad_frame(target, tally, b"", 0.2),
        *(_bad_frame(target, tally, frame, 0.5) for frame in (too_long, too_many, too_large, half)),
        _endless_body(target, tally),
        *(_slow_sender(target, tally) for _ in range(SLOW_SENDERS)),
        *(_slow_receiver(target, tally, bait) for _ in range(SLOW_RECEIVERS)),
        keep_open(target, tally, b""),
    ]


def _bad_frame(target: Target, tally: Tally, frame: bytes, rest: float) -> Steps:
    """A frame that breaks a limit, or only half of one, or bytes that are no frame; then away."""
    while True:
        attacker = Attacker(target, tally)
        attacker.send(frame or _RANDOM.randbytes(4096))
        yield rest
        attacker.look()
        attacker.close()


def _endless_body(target: Target, tally: Tally) -> Steps:
    """A body without a length, that goes on until the broker has had enough."""
    while True:
        attacker = Attacker(target, tally)
        attacker.send(_HELLO + _SEND + b"\n")
        for _ in range(2 * MAX_BODY // 50_000):
            attacker.send(b"x" * 50_000)
            yield 0.1
            attacker.look()
            if not attacker.is_open:
                break
        attacker.close()
        yield 0.1


def _slow_sender(target: Target, tally: Tally) -> Steps:
    """A frame, one byte a second."""
    while True:
        attacker = Attacker(target, tally)
        attacker.send(_HELLO)
        yield _RANDOM.random()
        for byte in _SEND:
            attacker.send(bytes([byte]))
            yield 1.0
        attacker.close()


def _slow_receiver(target: Target, tally: Tally, bait: str) -> Steps:
    """A consumer that wants many messages and reads none of them."""
    subscribe = f"SUBSCRIBE\nid:1\ndestination:/queue/{bait}\nack:client-individual\nactivemq.prefetchSize:1000\n\n\0"
    while True:
        attacker = Attacker(target, tally)
        attacker.send(_HELLO + subscribe.encode())
        yield 5.0
        attacker.close()


def keep_open(target: Target, tally: Tally, first: bytes, source: str = "") -> Steps:
    """Connections that say no more than what is first; those that the broker closes are opened again."""
    attackers: dict[int, Attacker] = {}
    poll = select.poll()
    while True:
        for descriptor, _ in poll.poll(0):
            attackers[descriptor].look()
            if not attackers[descriptor].is_open:
                poll.unregister(descriptor)
                del attackers[descriptor]
        for _ in range(min(_OPENED_AT_ONCE, SILENT_CONNECTIONS - len(attackers))):
            attacker = Attacker(target, tally, source)
            attacker.send(first)
            if attacker.is_open:
                attackers[attacker.fileno()] = attacker
                poll.register(attacker, select.POLLIN)
        tally.silent = len(attackers)
        yield _OPEN_REST


_PAUSE = 0.5


@contextmanager
def under_attack(
    attack: Callable[..., None], arguments: tuple[object, ...], tally: Tally, silent: int, look: Callable[[], None]
) -> Iterator[None]:
    """Meanwhile a process attacks, from when it has so many silent connections."""
    context, clock = multiprocessing.get_context("fork"), SystemClock()
    stop = context.Event()
    process = context.Process(target=attack, args=(*arguments, stop), daemon=True)
    process.start()
    try:
        deadline = clock.monotonic() + START_LIMIT
        while tally.silent < silent:
            if not process.is_alive() or clock.monotonic() > deadline:
                raise BrokerUnreachable(f"only {tally.silent} of {silent} connections were opened")
            time.sleep(_PAUSE)
            look()
        yield
    finally:
        stop.set()
        process.join(10)
        process.kill()
        process.join()
        tally.silent = 0
    # What the broker still has to do about them must not slow the victim alone.
    time.sleep(_PAUSE)


ROUNDS = 5
"""How often the victim is measured alone and under attack, in turn: machines are not equally fast at all times."""
MIN_SHARE = 0.9
"""How fast the victim must be under attack, as a share of its rate alone."""

_BAIT = Load(messages=5000, size=10_000, queue="perf.bait")


@dataclass
class Hostile(Scenario):
    """Measure a client alone and beside attackers, in turn; --messages is for each measurement.

    The attackers send garbage, half frames, too long heads and bodies, send or receive slowly, or say nothing.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_STOMP__MAX_BODY": str(MAX_BODY), "QUIRE_OPENWIRE__MAX_FRAME_SIZE": str(MAX_BODY)}

    messages: int

    def run(self) -> list[Finding]:
        # In shared memory: the attackers' process counts.
        self._tally: Tally = multiprocessing.get_context("fork").RawValue(Tally)
        send(self.broker.target, _BAIT, lambda counts: self.watch.look())
        alone, attacked = [], []
        for number in range(ROUNDS):
            alone.append(self._measure("alone", 2 * number))
            arguments = (self.broker.target, _BAIT.queue, self._tally)
            with under_attack(attack, arguments, self._tally, SILENT_CONNECTIONS, self.watch.look):
                attacked.append(self._measure("under attack", 2 * number + 1))
        return self._findings(median(alone), median(attacked))

    def _measure(self, text: str, number: int) -> float:
        tick = self.tick(text, 2 * self.messages, number / (2 * ROUNDS), 1 / (2 * ROUNDS))
        # A queue of its own for each round, as the first one had.
        return measure(self.broker.target, Load(self.messages, queue=f"perf.victim.{number}"), tick).messages_per_s

    def _findings(self, alone: float, attacked: float) -> list[Finding]:
        tally, one_message = self._tally, _BAIT.size + HEADERS + MESSAGE_OVERHEAD
        return [
            Finding("alone_per_s", round(alone)),
            Finding("attacked_per_s", round(attacked)),
            at_least("attacked_to_alone", round(attacked / alone, 3), MIN_SHARE),
            self.rss_anon(),
            at_most("peak_resident_bytes", self.broker.memory_peak(), self.memory_limit + 2 * one_message),
            Finding("hostile_connections", tally.connections),
            Finding("refused", tally.refused),
            at_least("errors", tally.errors, 1),
            at_least("closes", tally.closes, 1),
        ]
