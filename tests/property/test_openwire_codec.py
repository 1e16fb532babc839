"""Properties of the OpenWire codec: what is encoded comes back, and any bytes in any chunks are borne."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocols.openwire.codec import Decoder
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.primitives import decode as decode_text
from quire.protocols.openwire.primitives import encode as encode_text
from quire.protocols.openwire.primitives import read_map, read_values, write_map, write_values
from tests.fuzz.openwire_decoder import (
    broken,
    check,
    check_bytes,
    check_values,
    commands,
    decode,
    encoded,
    fault_of,
    formats,
)

CHUNKS = st.lists(st.integers(1, 40), max_size=8)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.binary(max_size=8),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXT, values, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.data(), formats(), CHUNKS)
def test_what_is_encoded_comes_back(data: st.DataObject, format: WireFormat, sizes: list[int]) -> None:
    sent = data.draw(st.lists(commands(format), max_size=5))
    stream = encoded(format, sent)
    decoder = Decoder(100_000)
    decoder.use(format)
    found = []
    for size in sizes:
        found += decode(decoder, stream[:size])
        stream = stream[size:]
    assert found + decode(decoder, stream) == sent
    assert fault_of(decoder) is None
    assert not decoder.buffered


@pytest.mark.slow
@given(broken(), CHUNKS)
def test_broken_frames_in_any_chunks_are_borne(case: tuple[bytes, WireFormat], sizes: list[int]) -> None:
    check(case[0], sizes, case[1])


@pytest.mark.slow
@given(st.binary(max_size=80))
def test_any_bytes_are_borne(data: bytes) -> None:
    check_bytes(data)
    check_values(data)


@given(TEXT)
def test_text_comes_back(text: str) -> None:
    octets = encode_text(text)
    assert b"\0" not in octets
    assert decode_text(octets) == text


@pytest.mark.slow
@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_a_map_comes_back(mapping: dict[str, Any]) -> None:
    octets = write_map(mapping)
    assert read_map(octets) == mapping
    assert write_map(read_map(octets, typed=True)) == octets


@pytest.mark.slow
@given(st.lists(VALUES, max_size=4))
def test_values_come_back(values: list[Any]) -> None:
    assert read_values(write_values(values)) == values
