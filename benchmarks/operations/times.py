"""What happens at a time: messages that expire at once, and messages that are all due at one instant."""

import time
from collections.abc import Iterator

from benchmarks.load import NumberedLoad, send
from benchmarks.operations.bench import Bench
from benchmarks.operations.queues import MILLION, SIZE
from benchmarks.stomp_client import send_all, send_frame
from quire.client import Topic
from quire.client.sync import connect

LEAD = 60.0
"""After so many seconds at the most everything has been sent that is to expire, or to be sent, at one instant."""


def _at(bench: Bench, count: int, lead: float) -> int:
    """An instant after everything is sent, in milliseconds since the epoch."""
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
        with connect(bench.broker.openwire, client_id=f"c{number}") as connection:
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
