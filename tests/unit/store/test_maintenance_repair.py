import base64
import json
from pathlib import Path

import pytest

from quire.store.base import Delivery, LaneState
from quire.store.maintenance.base import Problem, RepairReport
from quire.store.maintenance.open_store import open_for_reading, open_for_writing
from quire.store.maintenance.verify import verify
from quire.store.memory import MemoryStore
from quire.store.pages import ENTRY, EXPIRATION, KEY, LANE, RECORD
from tests.postgresql_server import PostgresqlServer
from tests.unit.store.maintained import LEFT, fill, findings, lines, mend, message, problems, sequences
from tests.unit.store.tampering import PagedTampering, page_of, tampering_for


@pytest.fixture(params=["lmdb", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        return filled(server.url_for(tmp_path))
    return filled(f"{request.param}://{tmp_path}/store")


@pytest.fixture(params=["lmdb", "sqlite"])
def paged_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return filled(f"{request.param}://{tmp_path}/store")


def filled(url: str) -> str:
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    return url


def test_nothing_is_wrong_with_a_sound_store(url: str) -> None:
    before = lines(url)
    assert findings(url) == []
    assert mend(url) == RepairReport()
    assert lines(url) == before


def test_verify_needs_nothing_but_the_spi() -> None:
    store = MemoryStore()
    store.open()
    fill(store)
    assert list(verify(store)) == []


def test_progress_counts_every_record(url: str) -> None:
    checked: list[int] = []
    with open_for_reading(url) as opened:
        assert list(verify(opened.store, opened.maintenance, checked.append)) == []
    assert sum(checked) == len(LEFT)


@pytest.mark.parametrize(("field", "problem"), [("next", Problem.BROKEN_NEXT), ("previous", Problem.BROKEN_PREVIOUS)])
@pytest.mark.parametrize("wrong", [0, 3, 7, 99])
def test_a_broken_link_is_named_and_mended(url: str, field: str, problem: Problem, wrong: int) -> None:
    before = lines(url)
    tampering_for(url).set_link(10, **{field: wrong})
    assert problems(url) == {(problem, 10)}
    assert mend(url) == RepairReport(relinked=1)
    assert lines(url) == before


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"head": 2}, Problem.WRONG_HEAD),
        ({"head": 0}, Problem.WRONG_HEAD),
        ({"tail": 38}, Problem.WRONG_TAIL),
        ({"count": 35}, Problem.WRONG_COUNT),
        ({"bytes": 1}, Problem.WRONG_BYTES),
        ({"next_sequence": 39}, Problem.WRONG_NEXT_SEQUENCE),
    ],
)
def test_a_wrong_state_is_named_and_mended(url: str, fields: dict[str, int], problem: Problem) -> None:
    before = lines(url)
    tampering_for(url).set_state(**fields)
    assert problems(url) == {(problem, 0)}
    assert mend(url) == RepairReport(lanes=1)
    if "next_sequence" in fields:
        # One that is lost can only be found again as far as there are records.
        before = [line.replace('"next_sequence":41', '"next_sequence":40') for line in before]
    assert lines(url) == before


def test_a_finding_says_where_and_what(url: str) -> None:
    tampering_for(url).set_link(10, next=12)
    (finding,) = findings(url)
    assert finding.destination == "queue://orders"
    assert finding.lane == 1
    assert finding.text == "record 10: next is 12; by the records it is 11"


def test_a_damaged_record_is_taken_out_and_kept_in_a_file(url: str, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.ndjson"
    tampering_for(url).damage_content(6)
    assert problems(url) == {(Problem.DAMAGED_RECORD, 6)}
    report = mend(url, damaged)
    assert (report.damaged, report.damaged_file) == (1, damaged)
    assert sequences(url) == [sequence for sequence in LEFT if sequence != 6]
    left = json.loads(damaged.read_text())
    assert (left["lane"], left["sequence"]) == (1, 6)
    assert len(base64.b64decode(left["content"])) == left["size"]


def test_a_delivery_state_of_no_record_is_removed(url: str) -> None:
    before = lines(url)
    tampering_for(url).add_delivery(4)
    assert problems(url) == {(Problem.STRAY_DELIVERY, 4)}
    assert mend(url) == RepairReport(cleared=1)
    assert lines(url) == before


def test_a_lane_without_a_destination_becomes_a_queue(url: str) -> None:
    tampering_for(url).lose_destination()
    assert problems(url) == {(Problem.STRAY_LANE, 0)}
    assert mend(url) == RepairReport(adopted=1)
    with open_for_reading(url) as opened:
        (recovered,) = [found for found in opened.store.destinations() if 1 in found.lanes]
    assert (recovered.kind, recovered.name) == ("queue", "Recovered.1")


def test_a_lost_links_page_comes_back_from_the_records(paged_url: str, tmp_path: Path) -> None:
    with PagedTampering(paged_url).editing() as (txn, dbs):
        txn.delete(KEY.pack(1, 1), db=dbs.links)
    assert (Problem.MISSING_LINK, 1) in problems(paged_url)
    # Records 3 and 4 were consumed, which only the lost page knew.
    report = mend(paged_url)
    assert (report.restored, report.lost, report.damaged) == (20, 0, 0)
    assert sequences(paged_url) == sorted({*LEFT, 3, 4})
    with open_for_reading(paged_url) as opened:
        messages, _ = opened.store.page(1, 0, 10**9, 1000)
        states = dict(opened.store.deliveries(1, 0, 1000))
    assert all(found.redelivered for found in messages if found.sequence <= 20)
    assert not any(found.redelivered for found in messages if found.sequence > 20)
    assert states[3] == Delivery(1, cause="restored by repair")
    assert states[5] == Delivery(2, 1, 1_800_000_000_000, "nack")


def test_an_unreadable_links_page_counts_as_lost(paged_url: str, tmp_path: Path) -> None:
    with PagedTampering(paged_url).editing() as (txn, dbs):
        txn.put(KEY.pack(1, 21), (page_of(txn, dbs, 21).links or b"")[:-1], db=dbs.links)
    assert problems(paged_url) == {(Problem.UNREADABLE, 21)}
    assert mend(paged_url).restored == 20


@pytest.mark.parametrize("entries", [b"\0" * ENTRY.size, b"\xff" * ENTRY.size * 18])
def test_links_that_lead_nowhere_count_as_lost(paged_url: str, tmp_path: Path, entries: bytes) -> None:
    with PagedTampering(paged_url).editing() as (txn, dbs):
        txn.put(KEY.pack(1, 21), entries, db=dbs.links)
    assert (Problem.UNREADABLE, 21) in problems(paged_url)
    report = mend(paged_url)
    assert (report.restored, report.lost, report.damaged) == (20, 0, 0)


def test_an_unreadable_state_is_made_again(paged_url: str, tmp_path: Path) -> None:
    with PagedTampering(paged_url).editing() as (txn, dbs):
        txn.put(LANE.pack(1), b"?", db=dbs.lanes)
    assert problems(paged_url) == {(Problem.UNREADABLE, 0)}
    assert mend(paged_url).lanes == 1
    with open_for_reading(paged_url) as opened:
        state = opened.store.lane_state(1)
    assert state == LaneState(1, 39, len(LEFT), sum(message(n).size for n in LEFT), 40, dispatch_mark=39)


@pytest.mark.parametrize("wrong", [0, 1, 4, 8, 9, 11, 20, 2**64 - 1])
@pytest.mark.parametrize("at", [1, 5, 10, 20])
def test_a_link_with_the_wrong_sequence_is_rewritten(paged_url: str, at: int, wrong: int) -> None:
    before = lines(paged_url)
    PagedTampering(paged_url).set_link(at, sequence=wrong)
    if wrong == at:
        assert findings(paged_url) == []
    elif (at, wrong) == (5, 4):  # still in order
        assert (Problem.WRONG_LINK, 4) in problems(paged_url)
    else:
        assert (Problem.UNREADABLE, 1) in problems(paged_url)
    mend(paged_url)
    assert lines(paged_url) == before


@pytest.mark.parametrize("fields", [{"priority": 9}, {"expiration": 5}])
def test_a_link_that_differs_from_its_header_is_rewritten(paged_url: str, fields: dict[str, int]) -> None:
    before = lines(paged_url)
    PagedTampering(paged_url).set_link(10, **fields)
    assert Problem.WRONG_LINK in {problem for problem, _ in problems(paged_url)}
    assert mend(paged_url).relinked == 1
    assert lines(paged_url) == before


@pytest.mark.parametrize("fields", [{"size": 1}, {"checksum": 1}, {"offset": 28}, {"offset": 10**9}])
def test_a_link_that_reads_the_wrong_bytes_is_rewritten(paged_url: str, fields: dict[str, int]) -> None:
    before = lines(paged_url)
    PagedTampering(paged_url).set_link(10, **fields)
    assert (Problem.DAMAGED_RECORD, 10) in problems(paged_url)
    assert mend(paged_url).relinked == 1
    assert lines(paged_url) == before


def test_a_damaged_header_is_rewritten_from_its_link(paged_url: str, tmp_path: Path) -> None:
    before = lines(paged_url)
    tampering = PagedTampering(paged_url)
    with tampering.editing() as (txn, dbs):
        pair = page_of(txn, dbs, 10)
        (entry,) = [entry for entry in pair.entries() if entry.sequence == 10]
        start = entry.offset - RECORD.size
        body = pair.body[:start] + b"\xff" * RECORD.size + pair.body[entry.offset :]
        txn.put(KEY.pack(1, pair.first), body, db=dbs.bodies)
    assert (Problem.WRONG_LINK, 10) in problems(paged_url)
    assert mend(paged_url).damaged == 0
    assert lines(paged_url) == before


def test_records_of_a_lost_body_page_are_dropped(paged_url: str, tmp_path: Path) -> None:
    with PagedTampering(paged_url).editing() as (txn, dbs):
        txn.delete(KEY.pack(1, 1), db=dbs.bodies)
    assert problems(paged_url) == {(Problem.DAMAGED_RECORD, sequence) for sequence in LEFT if sequence <= 20}
    assert mend(paged_url).lost == 18
    assert sequences(paged_url) == [sequence for sequence in LEFT if sequence > 20]


def test_expirations_are_made_to_agree_with_the_records(paged_url: str, tmp_path: Path) -> None:
    before = lines(paged_url)
    expiration = message(10).expiration
    with PagedTampering(paged_url).editing() as (txn, dbs):
        txn.delete(EXPIRATION.pack(expiration, 1, 10), db=dbs.expirations)
        txn.put(EXPIRATION.pack(expiration, 1, 11), b"", db=dbs.expirations)
    assert problems(paged_url) == {(Problem.WRONG_EXPIRATION, 10), (Problem.WRONG_EXPIRATION, 11)}
    assert mend(paged_url) == RepairReport(cleared=2)
    assert lines(paged_url) == before


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 7, 36])
def test_a_lane_of_many_steps_is_looked_at_as_one(url: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.store.maintenance.verify.STEP", step)
    monkeypatch.setattr("quire.store.maintenance.embedded._KEYS_AT_ONCE", step)
    monkeypatch.setattr("quire.store.maintenance.verify.GROUP_BYTES", 200)
    before = lines(url)
    assert mend(url) == RepairReport()
    tampering_for(url).set_link(10, next=12)
    tampering_for(url).set_link(20, previous=12)
    tampering_for(url).set_state(bytes=1)
    assert problems(url) == {(Problem.BROKEN_NEXT, 10), (Problem.BROKEN_PREVIOUS, 20), (Problem.WRONG_BYTES, 0)}
    assert mend(url) == RepairReport(relinked=2, lanes=1)
    assert lines(url) == before
