"""The bulk server beside a real broker: what it reads, when it comes and goes, who may ask."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pytest

from quire.arrow.lanes import COLUMNS, Comparison, Condition, LaneRange
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, DataLost, InvalidArgument, QuireError
from quire.http.bulk.bulk_server import MAX_BODY
from quire.spark.online import Broker, BulkAccess, BulkServer, answer
from quire.units import LARGEST
from tests.postgresql_server import PostgresqlServer
from tests.spark.running_broker import RunningBroker, running_broker

pytestmark = pytest.mark.slow

PATIENCE = 60.0
CLOCK = SystemClock()
BIG = "x" * 100_000


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = CLOCK.monotonic() + PATIENCE
    while not condition():
        assert CLOCK.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.05)


def access(broker: RunningBroker) -> BulkServer:
    (server,) = msgspec.convert(broker.api.call("POST", "/bulk"), BulkAccess).servers
    return server


def client(broker: RunningBroker, patience: float = PATIENCE) -> Broker:
    return Broker(broker.url, patience, PATIENCE)


def part(broker: RunningBroker, stream: str, first: int = 1, until: int | None = None) -> LaneRange:
    """Partition 0 of a stream."""
    states = client(broker).lanes("stream")
    (lane,) = [found.lanes[0] for found in states.destinations if found.name == stream]
    return LaneRange(f"stream://{stream}", 0, lane, first, until or states.states[lane].next_sequence)


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what a dead one leaves to its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


# What is read.


def test_a_range_with_the_columns_and_conditions_that_were_asked_for(broker: RunningBroker) -> None:
    broker.create("ranged", 2)
    for n in range(1, 11):
        broker.send("ranged", 1, body=f"body {n}", key=f"k{n % 2}")
    whole = part(broker, "ranged")
    found = rows(client(broker).read(whole._replace(first=3, until=9), ["key", "value"]))
    assert found == [{"key": f"k{n % 2}", "value": f"body {n}".encode()} for n in range(3, 9)]
    everything = rows(client(broker).read(whole, list(COLUMNS)))
    assert [row["offset"] for row in everything] == list(range(1, 11))
    assert {(row["destination"], row["partition"], row["persistent"]) for row in everything} == {
        ("stream://ranged", 0, True)
    }
    seventh = everything[6]["timestamp"]
    later = (Condition("timestamp", Comparison.FROM, (seventh,)), Condition("offset", Comparison.AMONG, (2, 8, 9)))
    assert rows(client(broker).read(whole, ["offset"], later)) == [{"offset": 8}, {"offset": 9}]


def test_what_lanes_there_are_is_told_as_of_one_moment(broker: RunningBroker) -> None:
    broker.create("told", 3)
    broker.send("told", 5, partition=2)
    broker.api.call("POST", "/queues/told/messages", {"body": "b", "count": 4})
    states = client(broker).lanes()
    kinds = {found.kind: found.lanes for found in states.destinations if found.name == "told"}
    assert [states.states[lane].count for lane in (*kinds["queue"], *kinds["stream"])] == [4, 0, 0, 5]
    lane = kinds["stream"][2]
    assert [link.sequence for link in client(broker).links(lane, 2, 3)] == [2, 3, 4]
    assert (client(broker).offset_at(lane, 0), client(broker).offset_at(lane, 1 << 50)) == (1, 6)
    assert {found.kind for found in client(broker).lanes("queue").destinations} == {"queue"}


def test_reading_consumes_nothing(broker: RunningBroker) -> None:
    broker.api.call("POST", "/queues/browsed/messages", {"body": "b", "count": 3})
    states = client(broker).lanes("queue")
    (lane,) = [found.lanes[0] for found in states.destinations if found.name == "browsed"]
    browsed = LaneRange("queue://browsed", 0, lane, 1, 4)
    for _ in range(2):
        assert rows(client(broker).read(browsed, ["offset"])) == [{"offset": 1}, {"offset": 2}, {"offset": 3}]
    assert broker.api.call("GET", "/queues/browsed")["depth"] == 3


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_other_stores_are_read_as_well(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    if kind == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        url = server.url_for(tmp_path)
    with running_broker(tmp_path, STORE__URL=url) as broker:
        broker.create("s")
        broker.send("s", 100)
        assert len(rows(client(broker).read(part(broker, "s"), ["value"]))) == 100


def test_a_store_in_memory_is_the_brokers_alone(tmp_path: Path) -> None:
    with (
        running_broker(tmp_path, STORE__URL="memory:") as broker,
        pytest.raises(InvalidArgument, match="no other process can read it"),
    ):
        client(broker).lanes()


# Who may ask, and for what.


def test_without_the_token_nothing_is_told(broker: RunningBroker) -> None:
    for path in ("/lanes", "/links?lane=1&start=1&limit=1", "/lanes?token=wrong"):
        with (
            pytest.raises(BrokerUnreachable, match="token"),
            answer("GET", access(broker).urls[0] + path, b"", PATIENCE),
        ):
            pass


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/read", b"no JSON", "malformed"),
        ("POST", "/read", b" " * (MAX_BODY + 1), f"larger than {MAX_BODY} bytes"),
        ("GET", "/links?lane=-1&start=0&limit=1", b"", "lane"),
        ("GET", f"/links?lane=1&start={LARGEST + 1}&limit=1", b"", "start"),
        ("GET", f"/offset?lane=1&time={1 << 64}", b"", "time"),
        ("POST", "/read", b'{"part": ["stream://s", 0, 1, 1, 9], "columns": ["price"]}', "price"),
        ("POST", "/read", b'{"part": ["stream://s", 0, 1, 1, 9], "columns": []}', "columns"),
        ("GET", "/links?lane=1&start=1&limit=0", b"", "limit"),
        ("GET", "/offset?lane=one&time=1", b"", "lane"),
        ("GET", "/nowhere", b"", "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_refused(broker: RunningBroker, method: str, path: str, body: bytes, says: str) -> None:
    there = access(broker)
    url = f"{there.urls[0]}{path}{'&' if '?' in path else '?'}token={quote(there.token)}"
    with pytest.raises(QuireError, match=says), answer(method, url, body, PATIENCE):
        pass


def test_a_condition_that_cannot_be_applied_is_told_behind_the_batches(broker: RunningBroker) -> None:
    broker.create("conditional")
    broker.send("conditional", 1)
    wrong = (Condition("offset", Comparison.BELOW, ("tomorrow",)),)
    with pytest.raises(InvalidArgument, match="condition"):
        rows(client(broker).read(part(broker, "conditional"), ["value"], wrong))


# Many readers, slow ones, and those that go away.


def test_a_slow_reader_costs_little_memory_and_nobody_waits_for_it(broker: RunningBroker) -> None:
    broker.create("large")
    broker.send("large", 600, body=BIG)
    whole = part(broker, "large")
    assert len(rows(client(broker).read(whole, ["offset"]))) == 600  # what a read takes is there from now on
    pid = broker.bulk_pid()
    before = resident(pid)
    slow = [client(broker).read(whole, ["value"]) for _ in range(8)]
    for reader in slow:
        next(reader)
    assert len(rows(client(broker).read(whole, ["offset"]))) == 600
    assert resident(pid) - before < 8 * 30_000_000  # of 60 MB each
    assert sum(batch.num_rows for batch in slow[0]) < 600  # the first batch was taken before
    for reader in slow:
        reader.close()


def resident(pid: int) -> int:
    """Its own memory, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_readers_that_go_away_make_room_for_others(broker: RunningBroker) -> None:
    broker.create("left")
    broker.send("left", 300, body=BIG)
    whole = part(broker, "left")
    for _ in range(20):  # more than may read at once
        with closing(client(broker).read(whole, ["value"])) as reader:
            next(reader)
    assert len(rows(client(broker).read(whole, ["offset"]))) == 300


def test_what_retention_has_taken_is_an_error_for_who_wants_all(tmp_path: Path) -> None:
    with running_broker(tmp_path, POLICY__RETENTION_BYTES="1MB") as broker:
        broker.create("s")
        for _ in range(4):
            broker.send("s", 10, body=BIG)
        wait_until(lambda: client(broker).lanes("stream").states[part(broker, "s").lane].head > 10)
        with pytest.raises(DataLost, match="offsets 1 to"):
            rows(client(broker).read(part(broker, "s"), ["offset"], whole=True))
        left = rows(client(broker).read(part(broker, "s"), ["offset"]))
        assert 1 < len(left) < 30


# When it comes and goes.


def test_one_is_started_for_all_who_ask_at_once(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        found: list[BulkServer] = []
        askers = [threading.Thread(target=lambda: found.append(access(broker))) for _ in range(5)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert len({(there.urls[0], there.token) for there in found}) == 1


def test_it_goes_when_it_is_idle_and_comes_when_it_is_needed(tmp_path: Path) -> None:
    with running_broker(tmp_path, BULK__IDLE_LIMIT="1s") as broker:
        broker.create("s")
        reader = client(broker)
        assert len(reader.lanes("stream").destinations) == 1
        first = broker.bulk_pid()
        wait_until(lambda: not is_running(first))
        assert len(reader.lanes("stream").destinations) == 1
        assert broker.bulk_pid() != first


def test_it_ends_with_the_broker_however_that_ends(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        access(broker)
        killed = broker.bulk_pid()
        assert is_running(killed)
        broker.restart()
        wait_until(lambda: not is_running(killed))
        access(broker)
        stopped = broker.bulk_pid()
        assert is_running(stopped)
        broker.api.call("POST", "/broker/stop")
        wait_until(lambda: not is_running(stopped))


def test_a_read_goes_on_when_the_broker_is_back(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("s")
        broker.send("s", 200, body=BIG)
        reader = client(broker).read(part(broker, "s"), ["offset", "value"])
        found = next(reader).column("offset").to_pylist()
        broker.restart()
        for batch in reader:
            found += batch.column("offset").to_pylist()
        assert found == list(range(1, 201))


def test_a_read_goes_on_when_only_the_bulk_server_was_killed(broker: RunningBroker) -> None:
    broker.create("killed")
    broker.send("killed", 200, body=BIG)
    reader = client(broker).read(part(broker, "killed"), ["offset", "value"])
    found = next(reader).column("offset").to_pylist()
    os.kill(broker.bulk_pid(), signal.SIGKILL)
    for batch in reader:
        found += batch.column("offset").to_pylist()
    assert found == list(range(1, 201))


def test_a_broker_that_stays_away_is_told_of(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("s")
        broker.send("s", 200, body=BIG)
        reader = client(broker, patience=1).read(part(broker, "s"), ["value"])
        next(reader)
        broker.kill()
        wait_until(lambda: not is_running(broker.bulk_pid()))
        with pytest.raises(BrokerUnreachable, match=r"after \d+ tries in 1 s \(readTimeout\)"):
            rows(reader)


def test_several_processes_answer_alike_and_a_lost_one_is_replaced_where_it_was(tmp_path: Path) -> None:
    with running_broker(tmp_path, BULK__PROCESSES="2") as broker:
        broker.create("s")
        broker.send("s", 200, body=BIG)
        whole = part(broker, "s")
        there = access(broker)
        pids = broker.bulk_pids()
        assert {f"http://{address}" for address in pids} == set(there.urls)
        assert len(pids) == 2
        reader = client(broker).read(whole, ["offset", "value"])
        found = next(reader).column("offset").to_pylist()
        lost = there.urls[0].removeprefix("http://")  # where the first task reads
        os.kill(pids[lost], signal.SIGKILL)
        broker.send("s", 1)  # the other one sees what is new
        for batch in reader:
            found += batch.column("offset").to_pylist()
        assert found == list(range(1, 201))
        assert len(rows(client(broker).read(whole._replace(until=202), ["offset"], whole=True))) == 201
        assert access(broker) == there
        replaced = broker.bulk_pids()
        assert replaced.keys() == pids.keys()
        assert [address for address in pids if replaced[address] != pids[address]] == [lost]


def test_processes_with_a_fixed_port_have_the_ports_after_it(tmp_path: Path) -> None:
    first = free_ports(2)
    with running_broker(tmp_path, BULK__ADDRESS=f"127.0.0.1:{first}", BULK__PROCESSES="2") as broker:
        assert access(broker).urls == [f"http://127.0.0.1:{first}", f"http://127.0.0.1:{first + 1}"]


def free_ports(count: int) -> int:
    """The first of some ports in a row that are free, below those of outgoing connections."""
    for first in range(23_000, 30_000, count):
        with suppress(OSError), ExitStack() as taken:
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no free ports found")


def test_it_says_why_it_cannot_start(broker: RunningBroker, tmp_path: Path) -> None:
    taken = access(broker).urls[0].removeprefix("http://")
    with running_broker(tmp_path, BULK__ADDRESS=taken) as other, pytest.raises(QuireError, match=r"bulk\.address"):
        access(other)
