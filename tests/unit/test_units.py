"""Sizes and durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.units import LARGEST, format_size, parse_duration, parse_number, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        (1024, 1024),
        ("512B", 512),
        ("64MB", 64_000_000),
        ("64MiB", 64 * 1024**2),
        ("64mib", 64 * 1024**2),
        (" 1 GiB ", 1024**3),
        ("1.5k", 1500),
        ("8.2MB", 8_200_000),
        ("9007199254740993", 9007199254740993),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 PB", "1.2.3", "1,5 MB", "64MBs", "0x10", "many", -1])
def test_what_is_no_size_is_refused_with_examples(text: str | int) -> None:
    with pytest.raises(ValueError, match="is not a size: write 1024, 64MB or 1GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        (30, 30.0),
        (0.5, 0.5),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("7d", 604800.0),
        ("1.5 H", 5400.0),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 10**9))
def test_a_duration_is_the_number_that_was_written(milliseconds: int) -> None:
    assert parse_duration(f"{milliseconds}ms") == milliseconds / 1000


@pytest.mark.parametrize("text", ["0", "7", "0009", str(LARGEST)])
def test_a_number_of_a_client_is_read(text: str) -> None:
    assert parse_number(text) == int(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1_0", "\u00b2", "\u0663", "1.0", str(LARGEST + 1), "9" * 5000])
def test_what_is_no_number_of_a_client_is_told_from_one(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 minutes", "1h30m", "1e3", "soon", "nan", "inf"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write 500ms, 30s, 5m, 1h or 7d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (64 * 1024**2, "64.0 MiB"),
        (3 * 1024**4, "3.0 TiB"),
        (5 * 1024**5, "5120.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes_are_written_for_people(size: float, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 10**15))
def test_a_number_of_bytes_is_itself(size: int) -> None:
    assert parse_size(size) == parse_size(f"{size}B") == size


@given(st.integers(0, 10**6), st.sampled_from("KMGT"))
def test_the_two_families_of_units_differ_by_their_base(number: int, unit: str) -> None:
    power = "KMGT".index(unit) + 1
    assert parse_size(f"{number}{unit}B") == number * 1000**power
    assert parse_size(f"{number}{unit}iB") == number * 1024**power


@given(st.integers(0, 10**15))
def test_a_written_size_is_read_back_within_its_last_digit(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.05, abs=0)


@given(st.text(max_size=10))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) >= 0
        except ValueError as refused:
            assert repr(text) in str(refused)  # noqa: PT017
