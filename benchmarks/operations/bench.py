"""A broker under measurement, and large operations on it: what they take, of time, of the event loop, of memory."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load import NumberedLoad, no_tick, send
from benchmarks.rig import MemoryWatch, OwnBroker, temporary_directory
from benchmarks.stomp_client import Consumer, send_all, send_frame
from quire.cli.api import exchange, pages
from quire.cli.perf.load import Load
from quire.cli.perf.measure import measure
from quire.client import AckMode, Queue, Topic
from quire.client.sync import connect
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable

LONGEST = "quire_loop_longest_turn_seconds"

FLAGS = {"memory-limit": "64MiB", "store": "lmdb"}


class Row(NamedTuple):
    what: str  # what was done
    seconds: float  # for how long
    number: int  # to how many messages, destinations or requests
    longest_turn: float  # for how long the event loop was busy at the most, in seconds
    rss_anon: int  # the most memory of its own that the process had, in bytes


class Bench:
    broker: OwnBroker  # the process

    def __init__(self, scale: float, tell: Callable[[Row, list[str]], None]) -> None:
        self._scale = scale  # by what the sizes of operations are multiplied
        self._tell = tell  # is told of each row, and what the broker logged about long turns meanwhile
        self._clock = SystemClock()
        self._stack = ExitStack()
        self.rows: list[Row] = []  # what was measured
        self._read_lines = 0

    def scaled(self, count: int) -> int:
        return max(int(count * self._scale), 1)

    @contextmanager
    def measure(self, what: str, count: int, *, starts: bool = False) -> Iterator[None]:
        """Measure what is done inside to so many messages, destinations or requests.

        A broker that has ended may be started first; that counts, and its memory is looked at when it is there.
        """
        if not starts:
            self.longest_turn()  # from here on
            self.long_turns()
        began = self._clock.monotonic()
        if starts:
            self.broker.start()
        with MemoryWatch(self.broker) as memory:
            yield
            seconds = self._clock.monotonic() - began
        row = Row(what, seconds, count, self.longest_turn(), memory.peak)
        self.rows.append(row)
        self._tell(row, self.long_turns())

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def wait_until(self, time_ms: int) -> None:
        time.sleep(max(time_ms - self.now_ms(), 0) / 1000)

    def longest_turn(self) -> float:
        """The longest turn of the event loop since this was asked last, in seconds."""
        _, content = exchange("GET", f"{self.broker.api.url}/metrics", None)
        for family in text_string_to_metric_families(content.decode()):
            if family.name == LONGEST:
                return float(family.samples[0].value)
        raise BrokerUnreachable("the broker does not measure its turns")

    def long_turns(self) -> list[str]:
        """What the broker's log says about turns that took long, since this was asked last."""
        lines = self.broker.log.splitlines()
        new, self._read_lines = lines[self._read_lines :], len(lines)
        events = [json.loads(line) for line in new if line.startswith("{")]
        return [str(event["text"]) for event in events if event.get("event") == "loop.slow"]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = stack.enter_context(temporary_directory())
            self.broker = stack.enter_context(OwnBroker(directory, FLAGS))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


MILLION = 1_000_000
SIZE = 100


def names(count: int, prefix: str = "many") -> list[str]:
    """Names of many queues, all of which the pattern ``many.>`` matches."""
    return [f"{prefix}.{number:05d}" for number in range(count)]


def fill(bench: Bench, queue: str, count: int, size: int = SIZE) -> None:
    send(bench.broker.target, Load(count, size=size, receipts=False, queue=queue))


def purge_delete_move(bench: Bench) -> None:
    """A million messages are moved to another queue, purged there, and deleted with a queue."""
    count, api = bench.scaled(MILLION), bench.broker.api
    fill(bench, "many", count)
    with bench.measure("moved", count):
        api.call("POST", "/queues/many/move", {"to": "other"})
    with bench.measure("purged", count):
        api.call("POST", "/queues/other/purge", {})
    fill(bench, "many", count)
    with bench.measure("deleted with their queue", count):
        api.call("DELETE", "/queues/many")


def browse(bench: Bench) -> None:
    """A million messages are browsed, over STOMP and over HTTP."""
    count, api = bench.scaled(MILLION), bench.broker.api
    fill(bench, "many", count)
    with bench.measure("browsed over STOMP", count):
        browser = Consumer(bench.broker.target, "/queue/many", 10_000, headers="browser:true\n")
        browser.drain(count)
    browser.link.close()
    with bench.measure("pages of 1000 over HTTP, the first hundred", 100):
        after = None
        for _ in range(100):
            after = api.call("GET", "/queues/many/messages", limit=1000, after=after)["next"]
            if after is None:
                break


def selectors(bench: Bench) -> None:
    """Selectors that match nothing look through a million messages: a consumer's, and an operator's."""
    count, api = bench.scaled(MILLION), bench.broker.api
    fill(bench, "many", count)
    with bench.measure("a consumer's: until what it wants has come", count):
        consumer = Consumer(bench.broker.target, "/queue/many", headers="selector:wanted = 'yes'\n")
        consumer.confirm()
        send_all(bench.broker.target, [send_frame("many", b"x", "wanted:yes\n")])
        consumer.drain(1)
    consumer.link.close()
    with bench.measure("an operator's purge", count):
        api.call("POST", "/queues/many/purge", {"selector": "wanted = 'no'"})


def restart(bench: Bench) -> None:
    """The broker is killed with a million messages in 10,000 queues, and started again."""
    queues = names(bench.scaled(10_000))
    count = 100 * len(queues)
    frames = [send_frame(name, b"x" * SIZE) for name in queues]
    for _ in range(100):
        send_all(bench.broker.target, frames)
    bench.broker.kill()
    started = bench.measure("until the first message has come", count, starts=True)
    with started, connect(bench.broker.openwire()) as connection:
        consumer = connection.session(AckMode.INDIVIDUAL).consumer(Queue(queues[-1]), prefetch=1)
        if consumer.receive(60) is None:
            raise BrokerUnreachable("no message came after the restart")


LEAD = 60.0
"""After so many seconds at the most everything has been sent that is to expire, or to be sent, at one instant."""


def _at(bench: Bench, count: int, lead: float) -> int:
    return bench.now_ms() + int(1000 * max(lead * count / MILLION, 3.0))


def _wait_for(bench: Bench, queue: str, depth: int) -> None:
    """Wait until a queue has so many messages."""
    while bench.broker.depth(queue) != depth:
        time.sleep(0.05)


def expiry(bench: Bench) -> None:
    """A million messages expire at once; then a thousand of a megabyte each."""
    for what, count, size in (
        ("small messages", bench.scaled(MILLION), SIZE), ("messages of 1 MB", bench.scaled(1000), 1_000_000),
    ):  # fmt: skip
        due = _at(bench, count if size == SIZE else MILLION // 4, LEAD)
        send(
            bench.broker.target,
            NumberedLoad(count, size=size, receipts=False, queue="late", headers=f"expires:{due}\n"),
        )
        bench.wait_until(due)
        with bench.measure(f"{what} expire at once", count):
            _wait_for(bench, "late", 0)


def offline_durables(bench: Bench) -> None:
    """A thousand messages expire that wait for 200 durable subscriptions without consumers."""
    count = bench.scaled(1000)
    for number in range(200):
        with connect(bench.broker.openwire(), client_id=f"c{number}") as connection:
            connection.session().consumer(Topic("news"), name="d")
    due = bench.now_ms() + 4000
    frame = send_frame("news", b"x" * SIZE, f"expires:{due}\n").replace(b"/queue/", b"/topic/")
    send_all(bench.broker.target, [frame] * count)
    bench.wait_until(due)
    with bench.measure("expired under 200 offline durable subscriptions", count):
        while any([entry["depth"] for entry in bench.broker.api.call("GET", "/durables")["durables"]]):
            time.sleep(0.05)


def scheduled(bench: Bench) -> None:
    """A million scheduled messages are all due at one instant."""
    count = bench.scaled(MILLION)
    due = _at(bench, count, LEAD)

    def frames() -> Iterator[bytes]:
        for _ in range(count):
            yield send_frame("due", b"x" * SIZE, f"AMQ_SCHEDULED_DELAY:{max(due - bench.now_ms(), 1)}\n")

    send_all(bench.broker.target, frames())
    bench.wait_until(due)
    with bench.measure("sent when they were due", count):
        _wait_for(bench, "due", count)


BIG = 100_000_000


def large_messages(bench: Bench) -> None:
    """Messages of 100 MB are sent, and taken."""
    count, body = 3, b"x" * bench.scaled(BIG)
    with bench.measure(f"messages of {len(body):,} bytes are sent", count):
        send_all(bench.broker.target, [send_frame("large", body)] * count)
    taken = bench.measure("they are taken and acknowledged", count)
    with taken, connect(bench.broker.openwire()) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(Queue("large"), prefetch=1)
        for _ in range(count):
            message = consumer.receive(60)
            assert message is not None
            assert len(message.body) == len(body)
            message.acknowledge()


def transactions(bench: Bench) -> None:
    """A transaction acknowledges 100,000 messages; its consumer goes, and then it commits, as JMS programs do."""
    count = bench.scaled(100_000)
    fill(bench, "q", count, 10)
    consumer = Consumer(bench.broker.target, "/queue/q", count)
    ids = consumer.collect(count)
    consumer.link.send(b"BEGIN\ntransaction:t\n\n\0")
    with bench.measure("acknowledged in a transaction", count):
        consumer.acknowledge_ids(ids, "t")
        consumer.link.send(b"SEND\ndestination:/queue/other\nreceipt:all\n\nx\0")
        consumer.link.receive_until(b"receipt-id:all\n")
    with bench.measure("the consumer ends", count):
        consumer.unsubscribe()
    with bench.measure("the transaction is committed", count):
        consumer.link.send(b"COMMIT\ntransaction:t\nreceipt:done\n\n\0")
        consumer.link.receive_until(b"receipt-id:done\n")
    consumer.link.close()


MANY = 10_000


def coming_and_going(bench: Bench) -> None:
    """10,000 queues are made by sending to them, and deleted one after the other."""
    queues = names(bench.scaled(MANY))
    with bench.measure("created by sending to each", len(queues)):
        send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in queues])
    with bench.measure("a consumer of `>` comes", len(queues)):
        consumer = Consumer(bench.broker.target, "/queue/>", 100)
        consumer.confirm()
    more = names(len(queues), "more")
    with bench.measure("as many more are created, which it consumes too", len(more)):
        send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in more])
    consumer.link.close()
    with bench.measure("deleted over HTTP, one after the other", len(queues)):
        for name in queues:
            bench.broker.api.call("DELETE", f"/queues/{name}", force="true")


def wildcard_consumers(bench: Bench) -> None:
    """A consumer of 10,000 queues comes, takes messages, acknowledges them, loses its connection and comes back."""
    queues = names(bench.scaled(MANY))
    each = 10
    total = each * len(queues)
    send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in queues for _ in range(each)])
    with bench.measure("the consumer comes: its receipt", len(queues)):
        consumer = Consumer(bench.broker.target, "/queue/many.>")
        consumer.confirm()
    with bench.measure("it takes and acknowledges a tenth", total // 10):
        consumer.drain(total // 10)
    left = total - consumer.received
    with bench.measure("its connection is lost, and it comes back", len(queues)):
        consumer.collect(consumer.received + 1)
        consumer.link.close()
        consumer = Consumer(bench.broker.target, "/queue/many.>")
        consumer.confirm()
        consumer.collect(500)
    with bench.measure("it ends with UNSUBSCRIBE", len(queues)):
        consumer.unsubscribe()
    consumer.link.close()
    consumer = Consumer(bench.broker.target, "/queue/many.>")
    with bench.measure("it takes and acknowledges the rest", left):
        consumer.drain(left)
    consumer.link.close()


def _queues(bench: Bench) -> list[dict[str, int]]:
    return list(pages(bench.broker.api, "/queues", "queues"))


def rates(bench: Bench) -> None:
    """The rate of a producer and a wildcard consumer over 50 and over 10,000 queues, in turn."""
    messages = bench.scaled(100_000)
    for count in (50, bench.scaled(MANY)):
        queues = names(count, f"rate{count}")
        choice = random.Random(1)
        frames = {name: send_frame(name, b"x" * 1024) for name in queues}
        send_all(bench.broker.target, frames.values())
        consumer = Consumer(bench.broker.target, f"/queue/rate{count}.>")
        consumer.drain(count)
        with bench.measure(f"sent to {count} queues at random", messages):
            send_all(bench.broker.target, [frames[choice.choice(queues)] for _ in range(messages)])
        with bench.measure(f"of {count} queues, taken and acknowledged by one wildcard consumer", messages):
            consumer.drain(count + messages)
        consumer.link.close()


def metrics_and_lists(bench: Bench) -> None:
    """Metrics and lists with 10,000 queues, each with a message and a consumer."""
    queues = names(bench.scaled(MANY))
    send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in queues])
    consumer = Consumer(bench.broker.target, "/queue/many.>")
    consumer.collect(1)
    with bench.measure("`GET /metrics`, 10 times", 10):
        for _ in range(10):
            exchange("GET", f"{bench.broker.api.url}/metrics", None)
    with bench.measure("`GET /queues`, all pages", len(queues)):
        _queues(bench)
    with bench.measure("`GET /broker`, 10 times", 10):
        for _ in range(10):
            bench.broker.api.call("GET", "/broker")
    consumer.link.close()


def sorted_lists(bench: Bench) -> None:
    """Pages of 10,000 queues, sorted, searched and chosen; the overview, the history and the picture; the sampler."""
    queues = names(bench.scaled(MANY))
    send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in queues])
    send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in queues[::7]])
    with bench.measure("ten seconds of the sampler alone", len(queues)):
        bench.wait_until(bench.now_ms() + 10_000)
    chosen: dict[str, dict[str, object]] = {
        "by name": {}, "by depth": {"sort": "-depth"}, "by rate": {"sort": "-in_rate"}, "by age": {"sort": "-oldest"},
        "by depth, from 9,000 on": {"sort": "-depth", "offset": 9 * len(queues) // 10},
        "searched": {"search": "0123"}, "without consumers, by depth": {"only": "unconsumed", "sort": "-depth"},
    }  # fmt: skip
    for what, query in chosen.items():
        with bench.measure(f"100 pages of 50 queues, {what}", 100):
            for _ in range(100):
                bench.broker.api.call("GET", "/queues", None, 60.0, limit=50, **query)
    for path in ("/overview", "/history", "/topology", "/consumers"):
        with bench.measure(f"`GET {path}`, 100 times", 100):
            for _ in range(100):
                bench.broker.api.call("GET", path)


def other_rate(bench: Bench) -> None:
    """The rate of one queue beside 10,000 others."""
    with bench.measure("one queue alone: sent and taken", bench.scaled(100_000)):
        measure(bench.broker.target, Load(bench.scaled(100_000)), no_tick)
    send_all(bench.broker.target, [send_frame(name, b"x" * 100) for name in names(bench.scaled(MANY))])
    with bench.measure("one queue beside 10,000: sent and taken", bench.scaled(100_000)):
        measure(bench.broker.target, Load(bench.scaled(100_000)), no_tick)
