"""Kinds of settings: what is written reads back the same."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.options import TEXT, duration, kind_of, size, unless_none
from quire.settings.key import Address, TimeOfDay, split_address

ADDRESS, TIME_OF_DAY = kind_of(Address), kind_of(TimeOfDay)


@given(st.integers(0, 2**50))
def test_written_size_reads_back(amount: int) -> None:
    kind = size(0)
    assert kind.parse(tomllib.loads(f"x = {kind.write(amount)}")["x"]) == amount


@given(st.integers(0, 10**10), st.sampled_from([1, 1000, 10**6]))
def test_written_duration_reads_back(amount: int, parts: int) -> None:
    kind = duration(0)
    assert kind.parse(tomllib.loads(f"x = {kind.write(amount / parts)}")["x"]) == amount / parts


@pytest.mark.parametrize(("value", "text"), [(-1.0, "-1"), (0.5, '"500ms"')])
def test_none_is_written_as_minus_one_and_reads_back(value: float, text: str) -> None:
    kind = unless_none(duration(0))
    assert kind.write(value) == text
    assert kind.parse(tomllib.loads(f"x = {text}")["x"]) == value
    assert kind.parse("-1") == -1.0


@pytest.mark.parametrize(
    ("amount", "text"), [(0, '"0"'), (5, '"5B"'), (64 * 2**20, '"64MiB"'), (10**11, '"100GB"'), (1500, '"1500B"')]
)
def test_size_is_written_with_the_largest_unit_that_is_exact(amount: int, text: str) -> None:
    assert size(0).write(amount) == text


def test_size_may_have_a_maximum() -> None:
    kind = size(1, 512 * 2**20)
    assert kind.allowed.endswith("at least 1, at most 512MiB")
    assert kind.parse("512MiB") == 512 * 2**20
    with pytest.raises(ValueError, match="513MiB"):
        kind.parse("513MiB")


@pytest.mark.parametrize(("seconds", "text"), [(0, '"0"'), (0.5, '"500ms"'), (90.0, '"90s"'), (3600.0, '"1h"')])
def test_duration_is_written_with_the_largest_unit_that_is_exact(seconds: float, text: str) -> None:
    assert duration(0).write(seconds) == text


@given(st.text(st.characters(codec="utf-8")))
def test_written_text_reads_back(text: str) -> None:
    assert TEXT.parse(tomllib.loads(f"x = {TEXT.write(text)}")["x"]) == text


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:61613", "127.0.0.1", 61613), (":0", "", 0), ("[::1]:8161", "::1", 8161), ("host:1", "host", 1)],
)
def test_address_is_split(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        parsed = ADDRESS.parse(text)
    except ValueError:
        return
    assert parsed == text
    assert 0 <= split_address(text)[1] <= 65535


@pytest.mark.parametrize("text", ["", "00:00", "03:00", "23:59:59"])
def test_times_of_the_day_are_read(text: str) -> None:
    assert TIME_OF_DAY.parse(text) == text


@pytest.mark.parametrize("value", ["3:00", "24:00", "03:60", "03", "03:00:60", "03:00 ", 3, None])
def test_what_is_no_time_of_the_day_is_refused(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the setting writes the text)
        TIME_OF_DAY.parse(value)
