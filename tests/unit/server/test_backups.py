"""When backups are made, and what is known of them."""

import time as system_time
from collections.abc import Iterator
from datetime import datetime, time
from pathlib import Path

import pytest

from quire.clock import ManualClock
from quire.errors import InvalidSettings
from quire.scheduler import Scheduler
from quire.server.background import Backups, next_time
from quire.settings import BackupSettings


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    system_time.tzset()
    yield
    monkeypatch.undo()
    system_time.tzset()


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


class Counted(Backups):
    """Counts the backups that it begins, and makes none."""

    began = 0

    def _begin(self) -> None:
        self.began += 1


def counted(tmp_path: Path, begin: str, at: str = "03:00") -> tuple[Counted, ManualClock, Scheduler]:
    clock = ManualClock(ms(begin))
    scheduler = Scheduler(clock)
    backups = Counted(BackupSettings(at=at, directory=str(tmp_path)), "lmdb:///store", clock, scheduler)
    backups.start()
    return backups, clock, scheduler


def run(clock: ManualClock, scheduler: Scheduler, seconds: float) -> None:
    for _ in range(int(seconds / 20)):
        clock.advance(20)
        scheduler.run_due()


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-07-01T02:59:59+02:00", "2026-07-01T03:00:00+02:00"),
        ("2026-07-01T03:00:00+02:00", "2026-07-02T03:00:00+02:00"),
        ("2026-12-31T23:00:00+01:00", "2027-01-01T03:00:00+01:00"),
        ("2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),  # the day has 23 hours
        ("2026-10-24T12:00:00+02:00", "2026-10-25T03:00:00+01:00"),  # and this one 25
    ],
)
def test_the_next_time_is_one_of_the_local_day(now: str, expected: str) -> None:
    assert next_time(time(3), ms(now)) == ms(expected)


def test_one_backup_a_day_is_begun(tmp_path: Path) -> None:
    backups, clock, scheduler = counted(tmp_path, "2026-07-01T02:00:00+02:00")
    run(clock, scheduler, 3590)
    assert backups.began == 0
    run(clock, scheduler, 60)
    assert backups.began == 1
    run(clock, scheduler, 23 * 3600)
    assert backups.began == 1
    run(clock, scheduler, 3600)
    assert backups.began == 2


def test_the_hour_that_comes_twice_has_one_backup(tmp_path: Path) -> None:
    backups, clock, scheduler = counted(tmp_path, "2026-10-25T01:00:00+02:00", at="02:30")
    run(clock, scheduler, 10 * 3600)
    assert backups.began == 1


def test_a_clock_that_is_set_back_by_days_does_not_put_backups_off(tmp_path: Path) -> None:
    backups, clock, scheduler = counted(tmp_path, "2026-07-10T02:00:00+02:00")
    clock._now_ms -= 5 * 86_400_000  # what an operator does to the machine
    run(clock, scheduler, 2 * 3600)
    assert backups.began == 1


def test_the_age_is_that_of_the_newest_backup_or_of_the_broker(tmp_path: Path) -> None:
    backups, clock, _ = counted(tmp_path, "2026-07-10T02:00:00+02:00")
    clock.advance(50)
    assert backups.age_seconds == 50
    (tmp_path / "quire-20260708T000000Z").mkdir()
    (tmp_path / "quire-20260709T000000Z").mkdir()
    (tmp_path / "quire-20260709T120000Z.part").mkdir()  # not complete
    backups, _, _ = counted(tmp_path, "2026-07-10T02:00:00+02:00")
    assert backups.age_seconds == 86_400


def test_without_a_time_there_is_no_backup_and_no_age(tmp_path: Path) -> None:
    backups, clock, scheduler = counted(tmp_path, "2026-07-10T02:00:00+02:00", at="")
    run(clock, scheduler, 2 * 86_400)
    assert (backups.began, backups.age_seconds) == (0, None)


@pytest.mark.parametrize("url", ["memory:", "postgresql+psycopg://h/d"])
def test_a_store_that_cannot_be_backed_up_is_refused_at_the_start(url: str) -> None:
    clock = ManualClock()
    with pytest.raises(InvalidSettings):
        Backups(BackupSettings(at="03:00"), url, clock, Scheduler(clock))
