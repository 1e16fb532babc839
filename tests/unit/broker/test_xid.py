"""The names of XA transaction branches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.broker.transactions.decisions import Xid
from quire.errors import InvalidArgument
from quire.store.base import MAX_MARK_KEY

XIDS = st.builds(
    Xid,
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=64),
)


@settings(max_examples=50)
@given(XIDS)
def test_a_name_can_be_written_and_read_and_fits_a_key(xid: Xid) -> None:
    assert Xid.parse(str(xid)) == xid
    assert len(f"xa/{xid}") <= MAX_MARK_KEY


@settings(max_examples=50)
@given(XIDS, XIDS)
def test_different_names_are_written_differently(first: Xid, second: Xid) -> None:
    assert (str(first) == str(second)) is (first == second)


def test_how_a_name_is_written() -> None:
    assert str(Xid(55, b"orders", b"\x01")) == "00000037-6f7264657273-01"
    assert str(Xid(-1, b"a", b"")) == "ffffffff-61-"


@pytest.mark.parametrize(
    "text",
    ["", "55-61-62", "00000037-61", "00000037--62", "00000037-6-62", "00000037-6G-62", "00000037-61-62-63", "x" * 999],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Xid.parse(text)


@pytest.mark.parametrize(
    ("format_id", "global_id", "branch_id"),
    [(1 << 31, b"a", b""), (-(1 << 31) - 1, b"a", b""), (1, b"", b""), (1, b"a" * 65, b""), (1, b"a", b"b" * 65)],
)
def test_what_cannot_be_a_name_is_refused(format_id: int, global_id: bytes, branch_id: bytes) -> None:
    with pytest.raises(InvalidArgument):
        Xid(format_id, global_id, branch_id)
