"""Whatever is done to links and states: repair keeps the records, and then there is nothing left to find."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.store.maintenance.open_store import open_for_writing, repair
from quire.store.pages import KEY, LANE
from tests.unit.store.maintained import LEFT, fill, findings, sequences
from tests.unit.store.tampering import PagedTampering, page_of

FIELDS = ("previous", "next", "size", "checksum")


def made(url: str) -> str:
    with open_for_writing(url, create=True) as opened:
        fill(opened.store)
    return url


def mended(url: str, place: Path) -> None:
    with open_for_writing(url) as opened:
        repair(opened, place / "damaged.ndjson")
    assert findings(url) == []


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from(LEFT), st.sampled_from(FIELDS), st.integers(0, 2**32 - 1)), max_size=10),
    st.dictionaries(st.sampled_from(["head", "tail", "count", "bytes"]), st.integers(0, 2**63 - 1)),
)
def test_any_wrong_fields_of_links_and_states_are_mended(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, str, int]], state: dict[str, int]
) -> None:
    place = tmp_path_factory.mktemp("damage")
    for url in (f"lmdb://{place}/lmdb", f"sqlite://{place}/sqlite"):
        made(url)
        tampering = PagedTampering(url)
        for at, field, value in damage:
            tampering.set_link(at, **{field: value})
        if state:
            tampering.set_state(**state)
        mended(url, place)
        assert sequences(url) == LEFT


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.sampled_from([1, 21]),
    st.binary(min_size=1, max_size=8),
    st.integers(0, 20 * 48 - 1),
    st.binary(max_size=60) | st.binary(min_size=48, max_size=48),
)
def test_any_bytes_in_a_links_page_are_survived(
    tmp_path_factory: pytest.TempPathFactory, first: int, damage: bytes, at: int, state: bytes
) -> None:
    place = tmp_path_factory.mktemp("damage")
    url = made(f"lmdb://{place}/store")
    with PagedTampering(url).editing() as (txn, dbs):
        links = page_of(txn, dbs, first).links
        assert links is not None
        txn.put(KEY.pack(1, first), links[:at] + damage + links[at + len(damage) :], db=dbs.links)
        txn.put(LANE.pack(1), state, db=dbs.lanes)
    findings(url)
    mended(url, place)
    # Only the page that was damaged may have lost or regained something.
    other = range(21, 41) if first == 1 else range(1, 21)
    assert [found for found in sequences(url) if found in other] == [found for found in LEFT if found in other]
