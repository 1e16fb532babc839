"""A daily backup of a broker under load: it stops nothing, and a broker runs on what is restored from it."""

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from quire.client import Queue
from quire.client.sync import connect
from tests.acceptance.crash.broker_process import BrokerProcess, quire

pytestmark = pytest.mark.slow

BEFORE = 3000
"""So many messages are stored before the backup begins."""

WAIT_SECONDS = 60.0


class Load(threading.Thread):
    """Sends numbered messages, each confirmed before the next one, until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0  # how many the broker has confirmed
        self.failure: Exception | None = None  # what ended it early
        self._url = url
        self._done = threading.Event()

    def run(self) -> None:
        """Send."""
        try:
            with connect(self._url) as connection, connection.session() as session:
                producer = session.producer(Queue("load"))
                while not self._done.is_set():
                    producer.send(str(self.confirmed))
                    self.confirmed += 1
        except Exception as error:  # the test tells of it
            self.failure = error

    def stop(self) -> None:
        """Stop sending."""
        self._done.set()
        self.join(WAIT_SECONDS)


@contextmanager
def loaded_broker(directory: Path, url: str) -> Iterator[tuple[BrokerProcess, Load]]:
    """A broker that backs itself up in some seconds, and what sends to it all the time."""
    at = (datetime.now().astimezone() + timedelta(seconds=8)).strftime("%H:%M:%S")
    settings = {"BACKUP__AT": at, "BACKUP__DIRECTORY": str(directory / "backups"), "BACKUP__KEEP": "2"}
    broker = BrokerProcess(directory, url, settings)
    broker.start()
    broker.port()
    load = Load(f"tcp://{broker._facts()['openwire']}")
    try:
        load.start()
        yield broker, load
    finally:
        load.stop()
        broker.kill()


def fill(broker: BrokerProcess) -> None:
    body = b'{"body": "%s", "count": %d}' % (b"x" * 2000, BEFORE)
    request = urllib.request.Request(f"{broker.http}/api/v1/queues/before/messages", body, method="POST")
    urllib.request.urlopen(request, timeout=WAIT_SECONDS).close()


@pytest.mark.parametrize("kind", ["lmdb", "sqlite"])
def test_a_backup_under_load_is_restored_and_has_all_that_was_confirmed_before(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ("quire.db" if kind == "sqlite" else "store")
    for old in ("20200101T030000Z", "20200102T030000Z"):
        (tmp_path / "backups" / f"quire-{old}").mkdir(parents=True)
    with loaded_broker(tmp_path, f"{kind}://{place}") as (broker, load):
        fill(broker)
        broker.wait_for_event("backup.started")
        confirmed_before = load.confirmed
        done = broker.wait_for_event("backup.done")
        confirmed_after = load.confirmed
        assert load.failure is None
        assert confirmed_after > confirmed_before, "nothing was confirmed while the backup was made"
        assert broker.metric("quire_backup_age_seconds") < WAIT_SECONDS
        assert broker.metric("quire_backup_failures_total") == 0
        assert not [each for each in broker.events("loop.slow") if each["what"] == "timer"]
    target = Path(str(done["target"]))
    assert [path.name for path in sorted((tmp_path / "backups").iterdir())] == ["quire-20200102T030000Z", target.name]
    restored = f"{kind}://{tmp_path / 'restored'}{'.db' if kind == 'sqlite' else ''}"
    assert quire("store", "restore", str(target), "--store", restored).returncode == 0
    verified = quire("store", "verify", "--store", restored)
    assert (verified.returncode, verified.stdout) == (0, "ok\n")
    (tmp_path / "again").mkdir()
    again = BrokerProcess(tmp_path / "again", restored)
    again.start()
    try:
        again.port()
        assert again.metric('quire_queue_messages{queue="before"}') == BEFORE
        assert confirmed_before <= again.metric('quire_queue_messages{queue="load"}') <= confirmed_after + 1
    finally:
        again.kill()


def test_a_backup_that_fails_is_told_and_the_broker_goes_on(tmp_path: Path) -> None:
    (tmp_path / "backups").write_text("a file where a directory is to be")
    with loaded_broker(tmp_path, "") as (broker, load):
        failed = broker.wait_for_event("backup.failed")
        assert "backups" in str(failed["text"])
        assert broker.metric("quire_backup_failures_total") == 1
        before = load.confirmed
        while load.confirmed == before:
            assert load.failure is None


def test_a_stop_ends_a_backup_that_is_under_way(tmp_path: Path) -> None:
    with loaded_broker(tmp_path, "") as (broker, load):
        broker.wait_for_event("backup.started")
        load.stop()
        broker.stop()
    assert not list((tmp_path / "backups").glob("quire-*Z")) or broker.events("backup.done")
