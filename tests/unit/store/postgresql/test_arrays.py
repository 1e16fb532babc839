"""Values in binary are what the driver itself makes of them, and what the server reads."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.numeric import Int8

from quire.store.postgresql.commit import bytea_array, int8, int8_array, text_array

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def dumped(value: Any) -> bytes:
    """A value in binary, by the driver."""
    data = Transformer().get_dumper(value, PyFormat.BINARY).dump(value)
    assert data is not None
    return bytes(data)


def loaded(kind: int, data: bytes) -> Any:
    """What the driver reads."""
    return Transformer().get_loader(kind, 1).load(data)  # type: ignore[arg-type]


@given(NUMBERS)
def test_number(value: int) -> None:
    assert int8(value) == dumped(Int8(value))


@given(st.lists(NUMBERS, min_size=1))
def test_numbers(values: list[int]) -> None:
    assert int8_array(values) == dumped([Int8(value) for value in values])


@given(st.lists(st.binary(), min_size=1))
def test_bytes(values: list[bytes]) -> None:
    assert loaded(1001, bytea_array(values)) == values


@given(st.lists(TEXTS, min_size=1))
def test_texts(values: list[str]) -> None:
    assert loaded(1009, text_array(values)) == values


@pytest.mark.parametrize(("kind", "array"), [(1016, int8_array), (1001, bytea_array), (1009, text_array)])
def test_nothing(kind: int, array: Callable[[list[Any]], bytes]) -> None:
    assert loaded(kind, array([])) == []
