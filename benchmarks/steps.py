"""What the steps of large operations take: ``python -m benchmarks.steps``.

Each operation has a broker of its own on LMDB, in a process of its own, that is driven turn by turn: so each call that
the event loop would make is timed alone, without what else the machine does meanwhile, and without sockets.
"""

import gc
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import NamedTuple

import click

from benchmarks.machine import machine, versions
from quire.broker.queues.queue import Queue
from quire.broker.schedule import ScheduledSend
from quire.broker.topics.topic import Topic
from quire.clock import SystemClock
from quire.management.messages import Choice
from quire.management.queues import Management
from quire.settings import Policies, Policy, Settings
from quire.store.base import Sync
from quire.store.lmdb import LmdbStore
from quire.testing.stepped import SteppedBroker

MEMORY_LIMIT = 16 << 20
PAYLOAD = 200
FILL = 1000


class Row(NamedTuple):
    """What an operation took.

    Attributes:
        name: the operation.
        messages: how many it was about.
        seconds: from its beginning to its end, commits included.
        longest: the longest call of the event loop, in seconds.
        processor: the same without the time in which others had the processor.
        call: which call that was.
        commit: the longest commit, on the writer's thread, in seconds.
        rss_anon: the most memory of its own that the process had, in bytes; before the operation, and during it.
    """

    name: str
    messages: int
    seconds: float
    longest: float
    processor: float
    call: str
    commit: float
    rss_anon: tuple[int, int]


class Rig:
    """A broker on LMDB that is driven turn by turn.

    Args:
        directory: where its store is.
        policy: what applies to all destinations.
    """

    def __init__(self, directory: Path, policy: Policy) -> None:
        self._directory = directory
        base = Settings()
        self._settings = replace(
            base, memory=replace(base.memory, limit=MEMORY_LIMIT), policies=Policies(policy, ()),
            spool=replace(base.spool, limit=8 << 30), store=replace(base.store, limit=1 << 40),
        )  # fmt: skip
        self._spools = 0
        self.open(Sync.NEVER)

    def open(self, sync: Sync) -> None:
        """Start the broker; the store is filled without being synced, and measured as it is by default."""
        self._spools += 1
        self.store = LmdbStore(self._directory / "store", sync)
        spool = LmdbStore(self._directory / f"spool-{self._spools}", Sync.NEVER)
        self.store.open()
        spool.open()
        self.longest = self.processor = self.commit = 0.0
        self.call, self.peak = "", 0
        self.timed("start", lambda: self._start(spool))

    def _start(self, spool: LmdbStore) -> None:
        self.stepped = SteppedBroker(self._settings, self.store, SystemClock(), spool)  # type: ignore[arg-type]
        self.broker = self.stepped.broker

    def reopen(self) -> None:
        """As after a crash, with what is stored and nothing else."""
        self.store.sync()
        self.store.close()
        self.open(Sync.ALWAYS)

    def begin(self) -> None:
        """Measure from now on."""
        gc.collect()
        gc.freeze()  # what filling the store has left is not there in a process that has just started
        self.longest = self.processor = self.commit = 0.0
        self.call, self.peak, self.before, self.begun = "", 0, rss_anon(), perf_counter()

    def timed(self, name: str, call: Callable[[], None]) -> None:
        """Make a call of the event loop."""
        begun, processor = perf_counter(), thread_time()
        call()
        self.longest = max(self.longest, perf_counter() - begun)
        taken = thread_time() - processor
        if taken > self.processor:
            self.processor, self.call = taken, name

    def drive(self, until: Callable[[], bool]) -> None:
        """Make the calls that an event loop would make, until something is true."""
        stepped, ticks = self.stepped, 0
        while not until():
            due = stepped.scheduler.next_deadline()
            ticks += 1
            if ticks % 8 == 0:
                self.peak = max(self.peak, rss_anon())
            if due is not None and due <= stepped.clock.monotonic():
                self.timed("timers", stepped.scheduler.run_due)
            if stepped.is_turn_wanted:
                self.timed("turn", stepped.turn)
            elif stepped.writer.batch is not None:
                begun = perf_counter()
                batch = stepped.writer.apply()
                self.commit = max(self.commit, perf_counter() - begun)
                self.timed("committed", lambda batch=batch: self.broker.turns.committed(batch, None))  # type: ignore[misc]
            else:
                sleep(0.001)

    def step_through(self, steps: Iterator[int]) -> int:
        """Take all steps of an operator's operation, each after the commit of the one before."""
        total, more = 0, True
        while more:
            count: list[int | None] = []
            self.timed("step", lambda count=count: count.append(next(steps, None)))  # type: ignore[misc]
            if count[0] is None:
                more = False
            else:
                total += count[0]
            done: list[bool] = []
            self.broker.core.after_commit(lambda done=done: done.append(True))  # type: ignore[misc]
            self.drive(lambda done=done: bool(done))  # type: ignore[misc]
        return total

    def fill(
        self, targets: list[Queue] | list[Topic], count: int, size: int = PAYLOAD, lives: float = 0, *,
        persistent: bool = True,
    ) -> None:  # fmt: skip
        """Send messages to some destinations in turn."""
        body, step = b"x" * size, FILL if size < 10_000 else 10
        expires = self.stepped.clock.now_ms() + round(lives * 1000) if lives else 0
        for first in range(0, count, step):
            for number in range(first, min(count, first + step)):
                content = b"message-id:%d\ntimestamp:1\n\n%b" % (number, body)
                targets[number % len(targets)].send(content, expires, persistent=persistent)
            self.stepped.run()


def rss_anon() -> int:
    """The memory of this process that is its own, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


LIVES = 0.001
"""Messages that expire have done so when they are measured."""

Scenario = Callable[[Rig, float], int]
"""Prepares, calls ``begin`` and drives an operation to its end.

It is given by what sizes are multiplied, and says how many messages the operation was about.
"""


def _expire(rig: Rig, count: int, queues: int, size: int = PAYLOAD) -> int:
    rig.fill([rig.broker.queue(f"q{number}") for number in range(queues)], count, size, LIVES)
    rig.reopen()
    rig.begin()
    found = list(rig.broker.queues.values())
    rig.drive(lambda: not any([queue.depth for queue in found if queue.destination.name.startswith("q")]))
    return count


def expire_one_queue(rig: Rig, scale: float) -> int:
    """Expired messages of one queue."""
    return _expire(rig, round(1_000_000 * scale), 1)


def expire_many_queues(rig: Rig, scale: float) -> int:
    """Expired messages, spread over 1,000 queues."""
    return _expire(rig, round(1_000_000 * scale), 1000)


def expire_to_letters(rig: Rig, scale: float) -> int:
    """Expired messages that become dead letters."""
    return _expire(rig, round(200_000 * scale), 1)


def expire_large(rig: Rig, scale: float) -> int:
    """Expired messages of 1 MB that become dead letters."""
    return _expire(rig, round(1000 * scale), 1, 1_000_000)


def expire_large_dropped(rig: Rig, scale: float) -> int:
    """Expired messages of 1 MB that are dropped."""
    return _expire(rig, round(1000 * scale), 1, 1_000_000)


def expire_durables(rig: Rig, scale: float) -> int:
    """Expired messages under 200 offline durable subscriptions, each of which becomes 200 dead letters."""
    topic = rig.broker.topic("t")
    for number in range(200):
        rig.broker.durables.create("c", f"d{number}", topic)
    rig.stepped.run()
    rig.fill([topic], round(1000 * scale), 1000, LIVES)
    rig.reopen()
    rig.begin()
    rig.drive(lambda: not any([durable.depth for durable in rig.broker.durables]))
    return round(1000 * scale) * 200


def expire_non_persistent(rig: Rig, scale: float) -> int:
    """Expired non-persistent messages, in memory and in the spool."""
    queue = rig.broker.queue("q")
    rig.fill([queue], round(200_000 * scale), 1000, 8 * scale + 2, persistent=False)
    rig.begin()
    rig.drive(lambda: not queue.depth)
    return round(200_000 * scale)


def _filled(rig: Rig, scale: float, count: int = 1_000_000) -> None:
    rig.fill([rig.broker.queue("q")], round(count * scale))
    rig.reopen()
    rig.begin()


def purge(rig: Rig, scale: float) -> int:
    """Purge a queue."""
    _filled(rig, scale)
    return rig.step_through(iter(Management(rig.broker).purge("q")))


def purge_prioritized(rig: Rig, scale: float) -> int:
    """Purge a prioritized queue."""
    queue, body = rig.broker.queue("q"), b"x" * PAYLOAD
    for first in range(0, round(1_000_000 * scale), FILL):
        for number in range(first, first + FILL):
            queue.send(b"message-id:%d\ntimestamp:1\n\n%b" % (number, body), 0, number % 10)
        rig.stepped.run()
    rig.reopen()
    rig.begin()
    return rig.step_through(iter(Management(rig.broker).purge("q")))


def move(rig: Rig, scale: float) -> int:
    """Move a queue's messages."""
    _filled(rig, scale)
    return rig.step_through(iter(Management(rig.broker).move("q", "other")))


def move_none(rig: Rig, scale: float) -> int:
    """Move with a selector that matches nothing."""
    _filled(rig, scale)
    choice = Choice(selector="colour = 'red' and weight between 3 and 4")
    rig.step_through(iter(Management(rig.broker).move("q", "other", choice)))
    return round(1_000_000 * scale)


def browse(rig: Rig, scale: float) -> int:
    """Browse a queue, a page after the other."""
    _filled(rig, scale, 200_000)
    seen = 0
    after: list[str | None] = [None]
    while True:
        pages: list[int] = []

        def look(pages: list[int] = pages) -> None:
            page = Management(rig.broker).browse("q", after[0], 1000)
            pages.append(len(page.messages))
            after[0] = page.next

        rig.timed("step", look)
        seen += pages[0]
        if after[0] is None:
            return seen


def delete_topic(rig: Rig, scale: float) -> int:
    """Delete a topic with a durable subscription."""
    topic = rig.broker.topic("t")
    rig.broker.durables.create("c", "d", topic)
    rig.stepped.run()
    rig.fill([topic], round(1_000_000 * scale))
    rig.reopen()
    rig.begin()
    destinations = rig.broker.destinations
    rig.timed("step", lambda: destinations.delete_topic(destinations.topics["t"]))
    rig.drive(lambda: not rig.stepped.is_turn_wanted and not rig.store.destinations())
    return round(1_000_000 * scale)


def scheduled(rig: Rig, scale: float) -> int:
    """Messages scheduled for one instant."""
    count = round(1_000_000 * scale)
    lives = 30 * scale + 5
    due = rig.stepped.clock.now_ms() + round(lives * 1000)  # until then all are stored
    for first in range(0, count, FILL):
        for number in range(first, first + FILL):
            content = b"message-id:%d\ntimestamp:1\n\n%b" % (number, b"x" * PAYLOAD)
            wait = max(1, due - rig.stepped.clock.now_ms())
            ScheduledSend(rig.broker.schedule, "/queue/q", wait).send(content)
        rig.stepped.run()
    rig.reopen()
    rig.drive(lambda: rig.stepped.clock.now_ms() >= due)
    rig.begin()
    rig.drive(lambda: rig.broker.schedule.depth == 0)
    return count


def start(rig: Rig, scale: float) -> int:
    """Start with 10,000 queues: the longest call is the start itself."""
    rig.fill([rig.broker.queue(f"q{number}") for number in range(round(10_000 * scale))], round(1_000_000 * scale))
    rig.before, rig.begun = rss_anon(), perf_counter()
    rig.reopen()
    rig.drive(lambda: not rig.stepped.is_turn_wanted)
    return round(1_000_000 * scale)


DROPPED = Policy(process_expired=False)
SCENARIOS: dict[str, tuple[Scenario, Policy]] = {
    "expire one queue": (expire_one_queue, DROPPED),
    "expire 1,000 queues": (expire_many_queues, DROPPED),
    "expire to dead letters": (expire_to_letters, Policy()),
    "expire 1 MB to dead letters": (expire_large, Policy()),
    "expire 1 MB dropped": (expire_large_dropped, DROPPED),
    "expire under 200 durables": (expire_durables, Policy()),
    "expire non-persistent": (expire_non_persistent, Policy()),
    "purge": (purge, Policy()),
    "purge prioritized": (purge_prioritized, Policy(prioritized_messages=True)),
    "move": (move, Policy()),
    "move, nothing matches": (move_none, Policy()),
    "browse": (browse, Policy()),
    "delete a topic": (delete_topic, Policy()),
    "scheduled for one instant": (scheduled, Policy()),
    "start with 10,000 queues": (start, Policy()),
}


def run(name: str, scale: float) -> Row:
    """Measure one operation, in this process."""
    scenario, policy = SCENARIOS[name]
    with tempfile.TemporaryDirectory(prefix="quire-steps-") as directory:
        rig = Rig(Path(directory), policy)
        count = scenario(rig, scale)
        taken, memory = perf_counter() - rig.begun, (rig.before, max(rig.peak, rss_anon()))
        return Row(name, count, taken, rig.longest, rig.processor, rig.call, rig.commit, memory)


@click.command()
@click.option("--only", "chosen", multiple=True, type=click.Choice(list(SCENARIOS)), help="Only this one; repeatable.")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Of all sizes.")
def main(chosen: tuple[str, ...], scale: float) -> None:
    """Measure the steps of large operations."""
    click.echo(f"{machine()}; {versions()}; LMDB, memory limit {MEMORY_LIMIT >> 20} MiB, sizes times {scale:g}\n")
    columns = ["operation", "messages", "seconds", "rate", "longest call", "of it processor", "which", "longest commit"]
    click.echo(f"| {' | '.join(columns)} | RssAnon |")
    click.echo("|---" * 9 + "|")
    for name in chosen or SCENARIOS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(run, (name, scale))
        before, peak = [f"{number >> 20}" for number in row.rss_anon]
        longest, processor, commit = [f"{t * 1000:.0f} ms" for t in (row.longest, row.processor, row.commit)]
        cells = [name, f"{row.messages:,}", f"{row.seconds:.1f}", f"{row.messages / row.seconds:,.0f}/s", longest]
        click.echo(f"| {' | '.join([*cells, processor, row.call, commit])} | {before} to {peak} MiB |")


if __name__ == "__main__":
    main()
