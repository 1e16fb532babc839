"""A broker on a small disk that is filled to the last byte."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quire.client import AckMode, Queue
from quire.client.sync import Consumer, connect
from quire.errors import BrokerUnreachable, ProducerHeld, StoreFull
from tests.acceptance.crash.broker_process import BrokerProcess, quire

_STEPS = (1 << 20, 4096, 1)


class CannotMount(Exception):
    """No file system can be mounted here; mostly because this is not root."""


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path  # where it is mounted
        self._ballast = path / "ballast"

    @property
    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Write a file until no more than so many bytes are free; what is in it already stays."""
        with self._ballast.open("ab", buffering=0) as file:
            for step in _STEPS:
                with suppress(OSError):
                    while self.free > leave and file.write(bytes(min(step, max(self.free - leave, 1)))):
                        pass

    def empty(self) -> None:
        self._ballast.unlink()


@contextmanager
def mounted(path: Path, size: str) -> Iterator[SmallDisk]:
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "quire-test", str(path)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(done.stderr.strip())
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


SIZE = "64m"
"""The disk."""

LIMIT = 16 << 20
"""``store.disk_free_limit``; a quarter of it is kept in reserve for the store, and as much for the spool."""

SETTINGS = {"STORE__DISK_FREE_LIMIT": str(LIMIT), "PRODUCER__HOLD_LIMIT": "1s", "MEMORY__LIMIT": "1MB"}

QUEUE = Queue("q")
BODY = 4000
WINDOW = 50
ENOUGH = 100_000


class FullDisk:
    """One broker on one small disk, and what is confirmed and not consumed yet."""

    def __init__(self, directory: Path, disk: SmallDisk, kind: str, settings: dict[str, str] | None = None) -> None:
        url = f"lmdb://{disk.path}/store" if kind == "lmdb" else f"sqlite://{disk.path}/store.db"
        self.disk = disk  # the small disk, for store and data directory
        self.broker = BrokerProcess(directory, url, SETTINGS | (settings or {}))
        self.broker.data = disk.path / "data"
        self.confirmed: list[int] = []  # the numbers of the messages that the broker has confirmed
        self.persistent = True  # whether the messages are
        self._next = 0

    def produce(self, count: int = ENOUGH) -> type[Exception] | None:
        with connect(self.broker.openwire(), on_error=lambda error: None) as connection:
            producer = connection.session().producer(QUEUE, persistent=self.persistent)
            for _ in range(0, count, WINDOW):
                numbers = range(self._next, self._next + WINDOW)
                self._next += WINDOW
                try:
                    for number in numbers:
                        producer.submit(b"%d " % number + bytes(BODY))
                    producer.flush()
                except (ProducerHeld, StoreFull, BrokerUnreachable) as refused:  # the last if a commit has failed
                    return type(refused)
                self.confirmed += numbers
        return None

    def consume(self, count: int = ENOUGH, patience: float = 5.0) -> list[int]:
        taken: list[int] = []
        with connect(self.broker.openwire()) as connection:
            consumer = connection.session(AckMode.INDIVIDUAL).consumer(QUEUE, prefetch=100)
            while len(taken) < count and (number := _take(consumer, patience)) is not None:
                taken.append(number)
        return taken

    def room(self, disk: str) -> float:
        return self.broker.metric(f'quire_disk_free_bytes{{disk="{disk}"}}')

    def held(self, cause: str) -> float:
        return self.broker.metric(f'quire_producers_held{{cause="{cause}"}}')

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not after {seconds:g} s: {what}\n{self.broker.log}"
            time.sleep(0.05)

    def verify_after_space(self) -> None:
        self.disk.empty()
        self.verify()

    def verify(self) -> None:
        done = quire("store", "verify", "--store", self.broker.store)
        assert done.returncode == 0, done.stdout + done.stderr


def _take(consumer: Consumer, patience: float) -> int | None:
    message = consumer.receive(patience)
    if message is None:
        return None
    message.acknowledge()
    return int(message.body.partition(b" ")[0])


def run(full: FullDisk, say: Callable[[str], None] = lambda text: None) -> None:
    """Fill, drain, stop, start, kill, start, drain, and go on when there is space."""
    broker, disk = full.broker, full.disk
    fill(full, say)
    part = full.consume(len(full.confirmed) // 4)
    say(f"{len(part)} messages were consumed, {disk.free} bytes are free")
    assert len(part) == len(full.confirmed) // 4
    disk.fill()
    broker.stop()
    full.verify()
    start_on_full_disk(full, say)
    broker.kill()
    full.verify()
    start_on_full_disk(full, say)
    rest = full.consume()
    missing = set(full.confirmed) - set(part) - set(rest)
    say(f"{len(rest)} messages were consumed on the full disk, {len(missing)} are missing")
    assert not missing
    go_on(full, "store", say)
    broker.stop()
    full.verify()


def run_spool(full: FullDisk, say: Callable[[str], None] = lambda text: None) -> None:
    """Fill the spool's disk, drain it, and go on when there is space; nothing is stopped meanwhile."""
    fill(full, say)
    rest = full.consume()
    missing = set(full.confirmed) - set(rest)
    say(f"{len(rest)} messages were consumed on the full disk, {len(missing)} are missing")
    assert not missing
    go_on(full, "spool", say)
    full.broker.stop()


def fill(full: FullDisk, say: Callable[[str], None]) -> None:
    broker, disk = full.broker, full.disk
    broker.start()
    refused = full.produce()
    say(f"{len(full.confirmed)} messages were confirmed, then came {refused}")
    assert refused
    assert broker.events("disk.low")
    disk.fill()
    say(f"another program has filled the disk: {disk.free} bytes are free")
    assert full.produce() is not None
    assert disk.free < 1 << 20


def start_on_full_disk(full: FullDisk, say: Callable[[str], None]) -> None:
    full.disk.fill()
    assert full.disk.free == 0
    full.broker.start()
    full.broker.port()
    say("it was started on the full disk")


def go_on(full: FullDisk, disk: str, say: Callable[[str], None]) -> None:
    full.disk.empty()
    full.wait_until(lambda: full.broker.metric("quire_store_writable") == 1, "the store takes writes")
    full.wait_until(lambda: full.room(disk) >= LIMIT, f"the {disk} has room again")
    assert full.produce(1000) is None
    assert len(full.consume()) == 1000
    say("there was space again, and it went on")
