"""Two brokers on one store: the second is refused, or waits and takes over."""

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers import free_port
from quire.cli.api import Api
from quire.client import AckMode, Queue
from quire.client.sync import connect
from quire.errors import BrokerStandby, QuireError
from quire.store.postgresql.ownership import LEASE_SECONDS
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

MakeBroker = Callable[..., BrokerProcess]

QUEUE = Queue("q")


def send(broker: BrokerProcess, body: bytes) -> None:
    with connect(broker.openwire()) as connection, connection.session() as session:
        session.producer(QUEUE).send(body)


def receive(broker: BrokerProcess, count: int) -> list[bytes]:
    """Take messages off the queue, and make sure that there are no more."""
    with connect(broker.openwire()) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(QUEUE)
        bodies: list[bytes] = []
        while message := consumer.receive(10 if len(bodies) < count else 0.2):
            bodies.append(message.body)
            message.acknowledge()
    return bodies


def test_second_broker_is_refused_and_says_who_has_the_store(store_url: str, make_broker: MakeBroker) -> None:
    first, second = make_broker(store_url), make_broker(store_url)
    first.start()
    first.port()
    second.start()
    assert second.wait() == 4
    assert "store-locked" in second.log
    assert f"process {first.process.pid}" in second.log
    send(first, b"1")
    first.stop()


def test_second_broker_in_a_data_directory_is_refused(tmp_path: Path, make_broker: MakeBroker) -> None:
    first = make_broker()
    second = make_broker(f"sqlite://{tmp_path}/other.db")
    second.data = first.data
    first.start()
    first.port()
    second.start()
    assert second.wait() == 4
    assert "uses the data directory" in second.log
    send(first, b"1")
    first.stop()


def test_standby_takes_over_when_the_first_is_killed(store_url: str, make_broker: MakeBroker) -> None:
    take_over(store_url, make_broker, BrokerProcess.kill)


def test_standby_takes_over_when_the_first_is_stopped(store_url: str, make_broker: MakeBroker) -> None:
    take_over(store_url, make_broker, BrokerProcess.stop)


def test_standby_on_postgresql_takes_over_when_the_lease_has_run_out(
    postgresql_server: PostgresqlServer, tmp_path: Path, make_broker: MakeBroker
) -> None:
    assert LEASE_SECONDS < 15  # or this test would be too short to see it run out
    take_over(postgresql_server.url_for(tmp_path / "killed"), make_broker, BrokerProcess.kill)


def test_standby_on_postgresql_takes_over_at_once_when_the_first_is_stopped(
    postgresql_server: PostgresqlServer, tmp_path: Path, make_broker: MakeBroker
) -> None:
    take_over(postgresql_server.url_for(tmp_path / "stopped"), make_broker, BrokerProcess.stop)


def test_paused_broker_on_postgresql_stops_when_it_finds_its_lease_taken(
    postgresql_server: PostgresqlServer, tmp_path: Path, make_broker: MakeBroker
) -> None:
    url = postgresql_server.url_for(tmp_path / "paused")
    first, second = make_broker(url), make_broker(url)
    first.start()
    with connect(first.openwire(), on_error=lambda error: None) as connection:
        producer = connection.session().producer(QUEUE)
        producer.send(b"1")
        second.start("--standby")
        second.wait_for_event("broker.standby")
        first.pause()
        unconfirmed = producer.submit(b"not confirmed")
        assert receive(second, 1) == [b"1"]
        first.resume()
        with pytest.raises(QuireError):
            unconfirmed.result(30)
    assert first.wait() == 4
    assert "store-locked" in first.log
    assert receive(second, 0) == []
    second.stop()


def test_paused_standby_on_postgresql_stands_by_again_in_its_own_process(
    postgresql_server: PostgresqlServer, tmp_path: Path, make_broker: MakeBroker
) -> None:
    url = postgresql_server.url_for(tmp_path / "paused")
    first, second = make_broker(url), make_broker(url)
    first.start("--standby")
    send(first, b"1")
    second.start("--standby")
    second.wait_for_event("broker.standby")
    first.pause()
    assert receive(second, 1) == [b"1"]
    first.resume()
    first.wait_for_event("broker.restarted")
    assert f"process {second.process.pid}" in str(first.wait_for_event("broker.standby")["owner"])
    send(second, b"2")
    second.stop()
    assert receive(first, 1) == [b"2"]  # it has the same number: its facts are those of the process that was started
    first.stop()


def test_standby_answers_probes(store_url: str, make_broker: MakeBroker) -> None:
    first, second = make_broker(store_url), make_broker(store_url)
    first.start()
    first.port()
    address = f"127.0.0.1:{free_port()}"
    second.start("--standby", "--http", address)
    second.wait_for_event("broker.standby")
    api = Api(f"http://{address}")
    assert api.probe("/health") == (200, "standby")
    assert api.probe("/ready") == (503, "standby")
    with pytest.raises(BrokerStandby):
        api.call("GET", "/queues")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        assert b"\nquire_standby 1.0\n" in answer.read()
    first.stop()
    second.port()
    assert api.probe("/ready") == (200, "running")
    assert second.metric("quire_standby") == 0
    second.stop()


def test_standby_whose_http_address_is_taken_waits_without_probes(store_url: str, make_broker: MakeBroker) -> None:
    address = f"127.0.0.1:{free_port()}"
    first, second = make_broker(store_url), make_broker(store_url)
    first.start("--http", address)
    first.port()
    second.start("--standby", "--http", address)
    second.wait_for_event("broker.standby-unprobed")
    second.wait_for_event("broker.standby")
    first.stop()
    second.port()
    assert Api(f"http://{address}").probe("/ready") == (200, "running")
    second.stop()


def take_over(url: str, make_broker: MakeBroker, end: Callable[[BrokerProcess], None]) -> None:
    first, second = make_broker(url), make_broker(url)
    first.start()
    send(first, b"1")
    second.start("--standby")
    waiting = second.wait_for_event("broker.standby")
    assert f"process {first.process.pid}" in str(waiting["owner"])
    send(first, b"2")
    assert second.events("broker.started") == []
    end(first)
    assert receive(second, 2) == [b"1", b"2"]
    send(second, b"3")
    second.stop()


def test_standby_that_is_told_to_stop_stops(store_url: str, make_broker: MakeBroker) -> None:
    first, second = make_broker(store_url), make_broker(store_url)
    first.start()
    first.port()
    second.start("--standby")
    second.wait_for_event("broker.standby")
    second.stop()
    send(first, b"1")
    first.stop()
