"""Which files of the broker a message goes through: a service with a real store, and one message that is traced."""

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import quire
from quire.clock import SystemClock
from quire.server.service import Service
from quire.settings import Settings
from quire.settings.keys import OpenWireSettings, StompSettings, StoreSettings
from quire.store.base import Sync
from quire.store.urls import store_for_url

PACKAGE = str(Path(quire.__file__).parent) + "/"

_TIMERS = "_tick"  # the service's timers are due at any time, and none of them is about the message
_LOCK = PACKAGE + "server/store_lock.py"  # nor is the look at the store's lock, on a thread of its own

Walk = dict[str, list[str]]
"""The functions that were entered by file, both in the order of their first entry."""


class Tracer:
    """Notes which functions of the broker are entered, on all threads that start while it is installed."""

    def __init__(self) -> None:
        self._entered: dict[CodeType, None] | None = None
        self._timers: dict[int, FrameType] = {}  # what is no part of the walk, by thread
        self._until, self._is_over = "", False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watch this thread, and those that are started from now on."""
        before = sys.getprofile()
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    def begin(self, until: str = "") -> None:
        """From here on what is entered counts, until a function of that name is, if one is given."""
        self._until, self._is_over, self._timers = until, False, {}
        gc.disable()  # the broker listens to the collector, which may come at any time
        self._entered = {}

    def end(self) -> Walk:
        """What was entered since ``begin``."""
        entered, self._entered = self._entered, None
        gc.enable()
        walk: Walk = {}
        for code in entered or ():
            walk.setdefault(code.co_filename.removeprefix(PACKAGE), []).append(code.co_name)
        return walk

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self._entered is None or not code.co_filename.startswith(PACKAGE):
            return
        thread = threading.get_ident()
        if event == "call" and thread not in self._timers:
            if code.co_name == _TIMERS or code.co_filename == _LOCK:
                self._timers[thread] = frame
            elif code.co_name == self._until:
                self._is_over = True
            elif not self._is_over:
                self._entered[code] = None
        elif event == "return" and frame is self._timers.get(thread):
            del self._timers[thread]


class _SlowClock(SystemClock):
    """A tenth as fast, so that a busy machine uses up no budget of a turn: what follows then is no part of the walk."""

    @staticmethod
    def monotonic() -> float:
        return SystemClock.monotonic() / 10


class _Client:
    """One STOMP connection, of which the broker knows nothing but its bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str) -> "_Client":
        host, _, port = address.rpartition(":")
        client = cls(*await asyncio.open_connection(host, int(port)))
        client.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        await client.read()
        return client

    def write(self, frame: bytes) -> None:
        self._writer.write(frame)

    async def read(self) -> bytes:
        return await self._reader.readuntil(b"\0")

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def _one_message(
    service: Service,
    producer: _Client,
    consumer: _Client,
    header: bytes,
    acknowledging: Callable[[], None] | None = None,
) -> None:
    """Send a persistent message, have it confirmed and delivered, acknowledge it, and see its removal stored."""
    core = service.broker.core
    producer.write(b"SEND\ndestination:/queue/walk\n" + header + b"\nreceipt:r\n\nbody\0")
    await producer.read()
    message = await consumer.read()
    while core.committing is not None or core.open.parts:
        await asyncio.sleep(0.001)
    before = core.commits_done
    id = message.partition(b"\nack:")[2].partition(b"\n")[0]
    if acknowledging is not None:
        acknowledging()
    consumer.write(b"ACK\nid:" + id + b"\n\n\0")
    while core.commits_done == before:
        await asyncio.sleep(0.001)


async def _walks(directory: Path, tracer: Tracer) -> tuple[Walk, Walk, Walk]:
    settings = Settings(
        store=StoreSettings(data=str(directory)), stomp=StompSettings(address="127.0.0.1:0"),
        openwire=OpenWireSettings(address="127.0.0.1:0"),
    )  # fmt: skip
    store = store_for_url((directory / "store").as_uri().replace("file:", "lmdb:", 1), Sync.NEVER)
    service = Service(settings, store, clock=_SlowClock())
    await service.take_store(standby=False)
    await service.start()
    producer, consumer = [await _Client.connect(service.stomp_address) for _ in range(2)]
    consumer.write(b"SUBSCRIBE\nid:1\ndestination:/queue/walk\nack:client-individual\nreceipt:s\n\n\0")
    await consumer.read()
    await _one_message(service, producer, consumer, b"first:1")
    walks = []
    for header in (b"first:1", b"second:1"):
        tracer.begin()
        await _one_message(service, producer, consumer, header)
        walks.append(tracer.end())
    await _one_message(service, producer, consumer, b"first:1", lambda: tracer.begin(until="_turn"))
    acknowledgement = tracer.end()
    for client in (producer, consumer):
        await client.close()
    await service.stop()
    store.close()
    return walks[0], walks[1], acknowledgement


def message_walks(directory: Path) -> tuple[Walk, Walk, Walk]:
    """The walks of two persistent messages through a queue: with a head that is known, and with a new one.

    The third walk is that of an acknowledgement, from its arrival into the open commit.

    Args:
        directory: empty; for the data of the broker.
    """
    tracer = Tracer()
    with tracer.installed():
        return asyncio.run(_walks(directory, tracer))
