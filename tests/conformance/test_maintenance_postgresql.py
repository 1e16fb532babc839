"""Maintenance of a store on PostgreSQL; what it shares with SQLite is shown there."""

from pathlib import Path

import pytest

from quire.errors import InvalidArgument, StoreUnreachable
from quire.store.maintenance.findings import Problem, RepairReport
from quire.store.maintenance.importer import import_lines
from quire.store.maintenance.open_store import open_for_reading, open_for_writing
from quire.store.maintenance.restore import restore
from tests.postgresql_server import PostgresqlServer
from tests.unit.store.maintained import LEFT, fill, findings, lines, mend, problems, sequences
from tests.unit.store.tampering import SqlTampering

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgresql_server: PostgresqlServer, tmp_path: Path) -> str:
    url = postgresql_server.url_for(tmp_path)
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    return url


def test_a_sound_store_is_left_alone(url: str) -> None:
    before = lines(url)
    assert findings(url) == []
    assert mend(url) == RepairReport()
    assert lines(url) == before


def test_damage_is_named_and_mended(url: str, tmp_path: Path) -> None:
    tampering = SqlTampering(url)
    tampering.set_link(10, next=12)
    tampering.set_state(count=1)
    tampering.lose_link(20)
    tampering.lose_record(22)
    tampering.damage_content(30)
    tampering.add_delivery(3)
    assert {
        (Problem.BROKEN_NEXT, 10),
        (Problem.WRONG_COUNT, 0),
        (Problem.MISSING_LINK, 20),
        (Problem.MISSING_RECORD, 22),
        (Problem.DAMAGED_RECORD, 30),
        (Problem.STRAY_DELIVERY, 3),
    } <= problems(url)
    report = mend(url, tmp_path / "damaged")
    assert (report.damaged, report.lost, report.cleared, report.lanes) == (1, 1, 1, 1)
    assert sequences(url) == [sequence for sequence in LEFT if sequence not in (22, 30)]


def test_an_export_comes_back_from_sqlite_unchanged(url: str, tmp_path: Path) -> None:
    other = f"sqlite://{tmp_path}/store"
    with open_for_writing(other, create=True) as opened:
        import_lines(opened.store, lines(url))
    assert lines(other) == lines(url)


def test_compacting_changes_nothing(url: str) -> None:
    before = lines(url)
    with open_for_writing(url) as opened:
        opened.maintenance.compact()
    assert lines(url) == before


def test_copies_are_left_to_the_server(url: str, tmp_path: Path) -> None:
    with open_for_reading(url) as opened, pytest.raises(InvalidArgument, match="pg_dump"):
        opened.maintenance.backup(tmp_path / "backup")
    with pytest.raises(InvalidArgument, match="pg_restore"):
        restore(url, tmp_path)


def test_reading_makes_no_store(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable), open_for_reading(postgresql_server.url_for(tmp_path)):
        pass


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(StoreUnreachable), open_for_reading("postgresql+psycopg://quire:secret@127.0.0.1:1/none"):
        pass
