"""A million messages in a queue: purged, deleted, moved, browsed, searched; and a restart with them."""

from benchmarks.load import send
from benchmarks.operations.bench import Bench
from benchmarks.stomp_client import Consumer, send_all, send_frame
from quire.cli.perf.load import Load
from quire.client import AckMode, Queue
from quire.client.sync import connect
from quire.errors import BrokerUnreachable

MILLION = 1_000_000
SIZE = 100


def names(count: int, prefix: str = "many") -> list[str]:
    """Names of many queues, all of which the pattern ``many.>`` matches."""
    return [f"{prefix}.{number:05d}" for number in range(count)]


def fill(bench: Bench, queue: str, count: int, size: int = SIZE) -> None:
    """Send messages to a queue."""
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
    with started, connect(bench.broker.openwire) as connection:
        consumer = connection.session(AckMode.INDIVIDUAL).consumer(Queue(queues[-1]), prefetch=1)
        if consumer.receive(60) is None:
            raise BrokerUnreachable("no message came after the restart")
