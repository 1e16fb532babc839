"""Maintenance of a store on PostgreSQL; what it shares with other stores is tested with them."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidArgument, StoreLocked, StoreUnreachable
from quire.store.base import Delivery, LaneState, WriteBatch
from quire.store.maintenance import postgresql
from quire.store.maintenance.backups import restore
from quire.store.maintenance.base import Problem, RepairReport
from quire.store.maintenance.open_store import open_for_reading, open_for_writing, repair
from quire.store.maintenance.transfer import import_lines
from quire.store.pages import ENTRY, RECORD
from tests.postgresql_server import PostgresqlServer
from tests.unit.store.maintained import LEFT, fill, findings, lines, mend, message, problems, sequences
from tests.unit.store.tampering import PostgresqlTampering

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgresql_server: PostgresqlServer, tmp_path: Path) -> str:
    """A store of two pages: records 1 to 20, and 21 to 40."""
    url = postgresql_server.url_for(tmp_path)
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    return url


@pytest.fixture
def tampering(url: str) -> PostgresqlTampering:
    return PostgresqlTampering(url)


@pytest.mark.parametrize(
    ("at", "fields", "problem"),
    [
        (20, {"next": 21}, Problem.BROKEN_NEXT),
        (39, {"next": 40}, Problem.BROKEN_NEXT),
        (21, {"previous": 19}, Problem.BROKEN_PREVIOUS),
        (21, {"previous": 21}, Problem.BROKEN_PREVIOUS),
        (1, {"previous": 1}, Problem.BROKEN_PREVIOUS),
    ],
)
def test_a_link_across_pages_is_checked(
    url: str, tampering: PostgresqlTampering, at: int, fields: dict[str, int], problem: Problem
) -> None:
    before = lines(url)
    tampering.set_link(at, **fields)
    assert (problem, at) in problems(url)
    assert mend(url) == RepairReport(relinked=1)
    assert lines(url) == before


def test_a_first_record_may_lead_to_one_that_is_gone(url: str, tampering: PostgresqlTampering) -> None:
    with open_for_writing(url) as opened:
        batch = WriteBatch()
        batch.lane(1).removals += [19, 20]
        opened.store.apply(batch)
    assert tampering.page_of(21).entries()[0].previous == 20
    assert findings(url) == []
    assert mend(url) == RepairReport()


@pytest.mark.parametrize("columns", [{"live": 17}, {"live": 19}, {"last": 38}])
def test_wrong_columns_of_a_page_are_named_and_mended(
    url: str, tampering: PostgresqlTampering, columns: dict[str, int]
) -> None:
    before = lines(url)
    tampering.set_page(21, **columns)
    assert (Problem.WRONG_PAGE, 21) in problems(url)
    assert mend(url) == RepairReport(pages=1)
    assert lines(url) == before


@pytest.mark.parametrize("fields", [{"priority": 9}, {"expiration": 5}])
def test_a_link_that_differs_from_its_header_is_rewritten(
    url: str, tampering: PostgresqlTampering, fields: dict[str, int]
) -> None:
    before = lines(url)
    tampering.set_link(10, **fields)
    assert Problem.WRONG_LINK in {problem for problem, _ in problems(url)}
    assert mend(url).relinked == 1
    assert lines(url) == before


@pytest.mark.parametrize("fields", [{"size": 1}, {"checksum": 1}, {"offset": 28}, {"offset": 10**9}])
def test_a_link_that_reads_the_wrong_bytes_is_rewritten(
    url: str, tampering: PostgresqlTampering, fields: dict[str, int]
) -> None:
    before = lines(url)
    tampering.set_link(10, **fields)
    assert (Problem.DAMAGED_RECORD, 10) in problems(url)
    assert mend(url).relinked == 1
    assert lines(url) == before


def test_a_damaged_header_is_rewritten_from_its_link(url: str, tampering: PostgresqlTampering) -> None:
    before = lines(url)
    page = tampering.page_of(10)
    (entry,) = [entry for entry in page.entries() if entry.sequence == 10]
    start = entry.offset - RECORD.size
    tampering.set_page(1, body=page.body[:start] + b"\xff" * RECORD.size + page.body[entry.offset :])
    assert (Problem.WRONG_LINK, 10) in problems(url)
    assert mend(url).damaged == 0
    assert lines(url) == before


def test_a_damaged_record_is_taken_out_and_kept_in_a_file(
    url: str, tampering: PostgresqlTampering, tmp_path: Path
) -> None:
    tampering.damage_content(30)
    assert problems(url) == {(Problem.DAMAGED_RECORD, 30)}
    report = mend(url, tmp_path / "damaged")
    assert (report.damaged, report.lanes, report.cleared) == (1, 1, 1)
    left = json.loads((tmp_path / "damaged").read_text())
    assert (left["sequence"], base64.b64decode(left["content"])[:-1]) == (30, message(30).content[:-1])
    assert sequences(url) == [sequence for sequence in LEFT if sequence != 30]


@pytest.mark.parametrize("entries", [b"", b"x", b"\0" * ENTRY.size, b"\xff" * ENTRY.size * 18])
def test_a_page_whose_entries_are_lost_comes_back_from_its_records(
    url: str, tampering: PostgresqlTampering, entries: bytes
) -> None:
    tampering.set_page(1, entries=entries)
    assert (Problem.UNREADABLE, 1) in problems(url)
    report = mend(url)
    # Records 3 and 4 were consumed, which only the lost entries knew.
    assert (report.restored, report.lost, report.damaged) == (20, 0, 0)
    assert sequences(url) == sorted({*LEFT, 3, 4})
    with open_for_reading(url) as opened:
        states = dict(opened.store.deliveries(1, 0, 1000))
    assert states[3] == Delivery(1, cause="restored by repair")
    assert states[5] == Delivery(2, 1, 1_800_000_000_000, "nack")


def test_records_of_a_lost_body_are_dropped(url: str, tampering: PostgresqlTampering) -> None:
    tampering.set_page(1, body=b"")
    assert problems(url) == {(Problem.DAMAGED_RECORD, sequence) for sequence in LEFT if sequence <= 20}
    assert mend(url).lost == 18
    assert sequences(url) == [sequence for sequence in LEFT if sequence > 20]


@pytest.mark.parametrize("first", [1, 21])
def test_a_lost_page_is_noticed_by_the_lanes_state(url: str, tampering: PostgresqlTampering, first: int) -> None:
    tampering.execute("DELETE FROM pages WHERE first = %s", first)
    wrong_end = Problem.WRONG_HEAD if first == 1 else Problem.WRONG_TAIL
    assert {(wrong_end, 0), (Problem.WRONG_COUNT, 0), (Problem.WRONG_BYTES, 0)} <= problems(url)
    assert mend(url).lanes == 1
    assert sequences(url) == [sequence for sequence in LEFT if (sequence <= 20) != (first == 1)]


def test_a_lost_state_is_made_again(url: str, tampering: PostgresqlTampering) -> None:
    tampering.execute("DELETE FROM lanes WHERE lane = 1")
    assert (Problem.WRONG_COUNT, 0) in problems(url)
    assert mend(url).lanes == 1
    with open_for_reading(url) as opened:
        state = opened.store.lane_state(1)
    assert state == LaneState(1, 39, len(LEFT), sum(message(n).size for n in LEFT), 40, dispatch_mark=39)


def test_expirations_are_made_to_agree_with_the_records(url: str, tampering: PostgresqlTampering) -> None:
    before = lines(url)
    expiration = message(10).expiration
    tampering.execute("DELETE FROM expirations WHERE sequence = 10")
    for lane, sequence in ((1, 11), (1, 40), (1, 99), (7, 1)):
        tampering.execute("INSERT INTO expirations VALUES (%s, %s, %s)", expiration, lane, sequence)
    tampering.execute("INSERT INTO expirations VALUES (%s, 1, 20)", expiration)
    assert problems(url) == {(Problem.WRONG_EXPIRATION, sequence) for sequence in (1, 10, 11, 20, 40, 99)}
    assert mend(url) == RepairReport(cleared=6)
    assert lines(url) == before


def test_delivery_states_of_no_record_are_removed(url: str, tampering: PostgresqlTampering) -> None:
    before = lines(url)
    for sequence in (3, 25, 99):
        tampering.add_delivery(sequence)
    tampering.execute("INSERT INTO deliveries VALUES (2, 1, 1, 0, 0, ''), (9, 7, 1, 0, 0, '')")
    assert problems(url) == {(Problem.STRAY_DELIVERY, sequence) for sequence in (3, 25, 99, 1, 7)}
    assert mend(url) == RepairReport(cleared=5)
    assert lines(url) == before


def test_a_second_row_of_the_owner_is_removed(url: str, tampering: PostgresqlTampering) -> None:
    tampering.execute("INSERT INTO owner SELECT 2, epoch, commit, 'b', process, token, pid, expires FROM owner")
    (finding,) = findings(url)
    assert (finding.problem, finding.lane, finding.destination) == (Problem.WRONG_OWNER, 0, "")
    assert mend(url) == RepairReport(owners=1)


def test_pages_are_read_a_number_at_a_time(
    url: str, tampering: PostgresqlTampering, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_for_writing(url) as opened:
        for sequence in range(41, 60):
            batch = WriteBatch()
            batch.lane(1).appends.append(message(sequence))
            opened.store.apply(batch)
    before = lines(url)
    for step, size in ((1, 1), (2, 10**6), (5, 500), (20, 300), (21, 1)):
        monkeypatch.setattr(postgresql, "_STEP", step)
        monkeypatch.setattr(postgresql, "GROUP_BYTES", size)
        assert mend(url) == RepairReport()
        tampering.set_link(50, previous=48)
        tampering.set_link(30, next=32)
        assert problems(url) == {(Problem.BROKEN_PREVIOUS, 50), (Problem.BROKEN_NEXT, 30)}
        assert mend(url) == RepairReport(relinked=2)
    assert lines(url) == before


def test_a_repair_that_lost_the_lock_changes_nothing(
    url: str, tampering: PostgresqlTampering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tampering.set_state(count=1)
    right = postgresql.stray_expirations

    def taken(connection: postgresql.Connection) -> Iterator[tuple[int, int, int]]:
        tampering.execute("UPDATE owner SET token = 'another', epoch = epoch + 1")
        return right(connection)

    with open_for_writing(url) as opened:
        monkeypatch.setattr(postgresql, "stray_expirations", taken)
        with pytest.raises(StoreLocked, match="changed nothing"):
            repair(opened, tmp_path / "damaged")
    assert problems(url) == {(Problem.WRONG_COUNT, 0)}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([1, 21]),
    st.binary(min_size=1, max_size=8),
    st.integers(0, 18 * ENTRY.size - 1),
    st.dictionaries(st.sampled_from(["head", "tail", "count", "bytes"]), st.integers(0, 2**62)),
    st.dictionaries(st.sampled_from(["last", "live"]), st.integers(0, 2**31 - 1)),
)
def test_any_bytes_in_entries_are_survived(
    postgresql_server: PostgresqlServer,
    tmp_path_factory: pytest.TempPathFactory,
    first: int,
    damage: bytes,
    at: int,
    state: dict[str, int],
    columns: dict[str, int],
) -> None:
    place = tmp_path_factory.mktemp("damage")
    url = postgresql_server.url_for(place)
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    tampering = PostgresqlTampering(url)
    links = tampering.page_of(first).links or b""
    tampering.set_page(first, entries=links[:at] + damage + links[at + len(damage) :], **columns)
    if state:
        tampering.set_state(**state)
    findings(url)
    mend(url, place / "damaged")
    # Only the page that was damaged may have lost or regained something.
    other = range(21, 41) if first == 1 else range(1, 21)
    assert [found for found in sequences(url) if found in other] == [found for found in LEFT if found in other]


def test_an_export_comes_back_from_sqlite_unchanged(url: str, tmp_path: Path) -> None:
    other = f"sqlite://{tmp_path}/store"
    with open_for_writing(other, create=True) as opened:
        import_lines(opened.store, lines(url))
    assert lines(other) == lines(url)


def test_an_export_of_lmdb_comes_back_unchanged(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    place, other = f"lmdb://{tmp_path}/store", postgresql_server.url_for(tmp_path / "other")
    with open_for_writing(place, create=True) as opened:
        fill(opened.store)
    with open_for_writing(other, create=True) as opened:
        import_lines(opened.store, lines(place))
    assert findings(other) == []
    assert lines(other) == lines(place)


def test_compacting_drops_what_was_removed_and_changes_nothing(url: str, tampering: PostgresqlTampering) -> None:
    with open_for_writing(url) as opened:
        batch = WriteBatch()
        batch.lane(1).removals += [n for n in range(1, 21) if n not in (7, 12)]
        opened.store.apply(batch)
    before = lines(url)
    body = len(tampering.page_of(7).body)
    with open_for_writing(url) as opened:
        opened.maintenance.compact()
    assert lines(url) == before
    assert findings(url) == []
    assert len(tampering.page_of(7).body) < body / 5
    assert len(tampering.page_of(30).body) > body


def test_the_size_is_that_of_the_tables(url: str) -> None:
    with open_for_reading(url) as opened:
        assert opened.maintenance.disk_bytes() > opened.store.size() > 0
        assert opened.maintenance.files() == []


def test_the_server_is_examined(
    url: str, tampering: PostgresqlTampering, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notices() -> Counter[str]:
        with open_for_reading(url) as opened:
            return Counter([notice.text.split(" ")[0] for notice in opened.maintenance.surroundings()])

    sound = Counter(["fsync", "nothing", "its"])  # this server runs without fsync
    assert notices() == sound
    monkeypatch.setattr(postgresql, "KEPT_LOG", -1)
    monkeypatch.setattr(postgresql, "OLD_SECONDS", 0)
    monkeypatch.setattr(postgresql, "SPARE_BYTES", -(2**40))
    with postgresql_server.connect() as connection:
        connection.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        try:
            assert notices() == Counter(["fsync", "the", "slot", "its"])
        finally:
            connection.execute("COMMIT")
            connection.execute("SELECT pg_drop_replication_slot('forgotten')")


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
