"""10,000 destinations: their coming and going, consumers of all of them, metrics and lists, and the rates with them."""

import random

from benchmarks.load import no_tick
from benchmarks.operations.bench import Bench
from benchmarks.operations.queues import names
from benchmarks.stomp_client import Consumer, send_all, send_frame
from quire.cli.api import exchange, pages
from quire.cli.perf.load import Load
from quire.cli.perf.measure import measure

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
