"""Names of destinations: what is one, what is none, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.destination import MAX_NAME, Destination, DestinationKind, queue
from quire.errors import InvalidDestination


@pytest.mark.parametrize(
    "name", ["orders", "ORDERS.eu.new", "a/b", "with space", "Bestellungen für Köln", "注文", "x" * MAX_NAME]
)
def test_a_queue_has_a_kind_and_a_name(name: str) -> None:
    assert queue(name) == Destination(DestinationKind.QUEUE, name)
    assert str(queue(name)) == f"queue://{name}"


@pytest.mark.parametrize(
    "name",
    ["", "x" * (MAX_NAME + 1), "ü" * (MAX_NAME // 2 + 1), "a\0b", "line\nfeed", "\x7f", "half \ud800 a character"],
)
def test_a_name_that_is_none_is_refused_with_what_to_write_instead(name: str) -> None:
    with pytest.raises(InvalidDestination, match="1 to 500 bytes, without control characters") as refused:
        queue(name)
    assert refused.value.data == {"name": name[:60]}
    assert len(str(refused.value)) < 400


def test_case_counts() -> None:
    assert queue("orders") != queue("Orders")


@given(st.text(max_size=600))
def test_any_text_is_a_name_that_fits_a_key_or_is_refused(name: str) -> None:
    try:
        made = queue(name)
    except InvalidDestination:
        return
    assert made.name == name
    assert 0 < len(name.encode()) <= MAX_NAME


def test_equal_destinations_are_one_key_and_cannot_be_changed() -> None:
    assert len({queue("a"), queue("a"), queue("b")}) == 2
    with pytest.raises(AttributeError):
        queue("a").name = "b"  # type: ignore[misc]
