"""Answers that break off, or come from something else: a read is whole, or it fails; it is never short."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest
from pyspark import TaskContext

from quire.errors import BrokerUnreachable
from quire.spark import online as online_module
from quire.spark.options import Options, Use
from quire.spark.reading import BatchReader, StreamReader
from tests.spark.cutting_server import Answer, CuttingServer, Spoil, whole
from tests.spark.running_broker import RunningBroker, running_broker

pytestmark = pytest.mark.slow

RECORDS = 600
BODY = "x" * 10_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create("s")
        broker.send("s", RECORDS, body=BODY)
        yield broker


@pytest.fixture
def server(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingServer]:
    monkeypatch.setattr(online_module, "BACK_OFF", 0.001)
    monkeypatch.setattr(online_module, "LONGEST_BACK_OFF", 0.05)
    with CuttingServer(broker.url) as server:
        yield server


def batch_read(server: CuttingServer, seconds: float = 10.0) -> list[int]:
    given = {"broker.url": server.url, "subscribe": "s", "readTimeout": f"{seconds:g}s", "fetchTimeout": "5s"}
    reader = BatchReader(Options.of(given, Use.READ), ["offset", "value"])
    return [row["offset"] for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def stream_read(server: CuttingServer, seconds: float = 10.0) -> list[int]:
    given = {"broker.url": server.url, "subscribe": "s", "startingOffsets": "earliest", "readTimeout": f"{seconds:g}s"}
    reader = StreamReader(Options.of(given, Use.STREAM), ["value"])
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = sum(len(batch) for task in reader.partitions(start, end) for batch in reader.read(task))
    return list(range(1, found + 1))


def every(answer: Spoil, *paths: str) -> Spoil:
    """Each answer to these is spoiled."""
    return lambda path, content: answer(path, content) if path in paths else whole(path, content)


def first(times: int, answer: Spoil, *paths: str) -> Spoil:
    """The first answers to these are spoiled."""
    asked = count()
    return lambda path, content: (
        answer(path, content) if path in paths and next(asked) < times else whole(path, content)
    )


def cut(share: float, framing: str) -> Spoil:
    """An answer ends behind a share of its content."""
    return lambda path, content: Answer(200, content, int(len(content) * share), framing)


def page(status: int) -> Spoil:
    """Something answers that is no broker: a proxy, while the broker is away."""
    text = b"<html>Service Unavailable</html>"
    return lambda path, content: Answer(status, text, len(text), "length")


FRAMINGS = ("length", "chunked", "close")
SHARES = (0.0, 0.1, 0.35, 0.5, 0.65, 0.9, 0.999999)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("share", SHARES)
def test_an_answer_that_is_cut_is_read_on_where_it_was(server: CuttingServer, framing: str, share: float) -> None:
    server.spoil = first(2, cut(share, framing), "/read")
    assert batch_read(server) == list(range(1, RECORDS + 1))
    assert server.paths.count("/read") == 3
    server.spoil = first(2, cut(share, framing), "/read", "/lanes", "/links", "/api/v1/bulk")
    assert stream_read(server) == list(range(1, RECORDS + 1))


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("path", ["/read", "/lanes", "/api/v1/bulk"])
def test_answers_that_are_always_cut_are_an_error_and_never_a_short_read(
    server: CuttingServer, path: str, framing: str
) -> None:
    server.spoil = every(cut(0.05, framing), path)
    for read in (batch_read, stream_read):
        with pytest.raises(BrokerUnreachable, match=r"incomplete|lost during an answer.*\(readTimeout\)"):
            read(server, 0.3)


def test_an_arrow_stream_without_its_end_is_not_whole(server: CuttingServer) -> None:
    def without_trailer(path: str, content: bytes) -> Answer:
        ended = content[: content.rindex(b"{")]
        return Answer(200, ended, len(ended))

    server.spoil = first(1, without_trailer, "/read")
    assert batch_read(server) == list(range(1, RECORDS + 1))
    server.spoil = every(without_trailer, "/read")
    with pytest.raises(BrokerUnreachable):
        batch_read(server, 0.3)


@pytest.mark.parametrize("status", [200, 502, 503])
def test_something_else_that_answers_is_not_taken_for_the_broker(server: CuttingServer, status: int) -> None:
    paths = ("/read", "/lanes", "/api/v1/bulk")
    server.spoil = first(4, page(status), *paths)
    assert batch_read(server) == list(range(1, RECORDS + 1))
    for path in paths:
        server.spoil = every(page(status), path)
        with pytest.raises(BrokerUnreachable):
            batch_read(server, 0.3)


def test_an_error_of_the_broker_that_passes_is_waited_for(server: CuttingServer) -> None:
    text = b'{"error": {"code": "store-failed", "text": "the disk does not answer", "data": {}}}'
    server.spoil = first(3, lambda path, content: Answer(503, text, len(text), "length"), "/read", "/lanes")
    assert batch_read(server) == list(range(1, RECORDS + 1))


def test_a_read_goes_on_at_another_process(broker: RunningBroker, server: CuttingServer) -> None:
    with CuttingServer(broker.url) as other:
        server.also = [other.url]
        server.spoil = every(cut(0.35, "length"), "/read")
        assert batch_read(server) == list(range(1, RECORDS + 1))
        assert server.paths.count("/read") == other.paths.count("/read") == 1


def test_tasks_spread_over_the_processes(
    broker: RunningBroker, server: CuttingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"broker.url": server.url, "subscribe": "s", "minPartitions": "4"}
    with CuttingServer(broker.url) as other:
        server.also = [other.url]
        reader = BatchReader(Options.of(given, Use.READ), ["offset"])
        for number, task in enumerate(reader.partitions(), 7):
            monkeypatch.setattr(TaskContext, "get", lambda number=number: Running(number))
            assert sum(len(batch) for batch in reader.read(task)) == RECORDS // 4
        assert server.paths.count("/read") == other.paths.count("/read") == 2


class Running(NamedTuple):
    """Spark's context of a task that runs."""

    number: int

    def taskAttemptId(self) -> int:
        return self.number

    def getLocalProperty(self, name: str) -> None:
        """No job takes a sample."""
