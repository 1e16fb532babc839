"""A store that fails under load: clients are told, consumers go on, the broker recovers by itself, nothing is lost."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from quire.client.connection import Connection, connect
from quire.errors import StoreFull
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.crash.conftest import embedded
from tests.acceptance.crash.load import Load
from tests.acceptance.crash.rounds import check_store

pytestmark = [pytest.mark.slow, pytest.mark.alone]

MakeBroker = Callable[..., BrokerProcess]


@pytest.mark.parametrize(
    ("fault", "point", "code"), [("no-space", "inside", "store-full"), ("io-error", "before", "store-failed")]
)
def test_failing_commits_lose_nothing(
    store_url: str, make_broker: MakeBroker, fault: str, point: str, code: str
) -> None:
    broker = make_broker(store_url)
    broker.start_with_fault(fault, point, nth=40, times=2)

    async def run() -> set[str]:
        async with Load(Random(5)) as load:
            load.place.port = await asyncio.to_thread(broker.port)
            await asyncio.to_thread(broker.wait_for_event, "store.recovered")
            await load.finish()
        return load.errors

    assert asyncio.run(run()) == {code}
    broker.stop()
    assert check_store(store_url) == 0
    failed = broker.events("store.failed")
    assert [event["code"] for event in failed] == [code]
    assert len(broker.events("store.recovered")) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=12m", "quire-test", str(place)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("kind", ["lmdb", "sqlite"])
def test_full_disk_refuses_producers_and_serves_consumers(kind: str, small_disk: Path, make_broker: MakeBroker) -> None:
    broker = make_broker(embedded(kind, small_disk))
    broker.start()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    confirmed = fill_the_disk(broker.port())
    assert confirmed > 10
    with connect("127.0.0.1", broker.port()) as consumer:
        consumer.subscribe("/queue/q", prefetch=10)
        assert take(consumer, 5) == list(range(5))  # though nothing can be added
        ballast.unlink()
        broker.wait_for_event("store.recovered")
        assert take(consumer, confirmed - 5) == list(range(5, confirmed))
        consumer.disconnect()
    assert [event["code"] for event in broker.events("store.failed")] == ["store-full"]
    assert broker.metric("quire_commit_errors_total") >= 1
    assert broker.metric("quire_store_writable") == 1
    with connect("127.0.0.1", broker.port()) as producer:
        producer.send("/queue/q", b"0")
        producer.disconnect()
    broker.stop()
    assert check_store(broker.url) == 1


def fill_the_disk(port: int) -> int:
    """Send numbered bodies until the broker says that it is full.

    Returns:
        How many were confirmed.
    """
    with connect("127.0.0.1", port) as producer:
        for confirmed in range(1000):
            try:
                producer.send("/queue/q", b"%d " % confirmed + bytes(100_000))
            except StoreFull:
                return confirmed
    pytest.fail("the disk is larger than it should be")


def take(consumer: Connection, count: int) -> list[int]:
    """Take messages, and acknowledge them.

    Returns:
        Their numbers.
    """
    taken: list[int] = []
    while len(taken) < count and (frame := consumer.receive(10)):
        taken.append(int(frame.body[: frame.body.index(b" ")]))
        consumer.ack(frame)
    return taken
