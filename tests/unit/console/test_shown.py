"""Values as pages show them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.console import shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", "orders"), ("nul\0", "nul␀"), ("\x1b[31m", "␛[31m"), ("a\nb", "a␊b"), ("\u202eabc", "⟨U+202E⟩abc"),
        ("\u2028", "⟨U+2028⟩"), ("x" * 300, "x" * 200 + "… (300 characters)"), (None, shown.UNKNOWN), ("<b>", "<b>"),
    ],
)  # fmt: skip
def test_text_of_clients_is_one_visible_line(text: str | None, expected: str) -> None:
    assert shown.text(text) == expected


@given(st.text())
def test_no_text_has_anything_that_is_not_seen_or_turns_the_line(text: str) -> None:
    line = shown.text(text, 1000)
    assert not any([character < " " or character in "\u202a\u202b\u202d\u202e\u2066\u2067\u2068" for character in line])


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, shown.UNKNOWN), (0, "0"), (0.01, "<0.1/s"), (3.14, "3.1/s"), (48210.4, "48,210/s")],
)
def test_rates(value: float | None, expected: str) -> None:
    assert shown.rate(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, shown.UNKNOWN),
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (150 << 20, "150 MiB"),
        (1 << 62, "4,096.0 PiB"),
    ],
)
def test_sizes(value: int | None, expected: str) -> None:
    assert shown.size(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, shown.UNKNOWN),
        (0.25, "0.2 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90061, "1 d 1 h"),
        (86400, "1 d"),
    ],
)
def test_spans(value: float | None, expected: str) -> None:
    assert shown.span(value) == expected


@given(st.one_of(st.none(), st.integers(), st.floats(allow_nan=False)))
def test_any_number_is_a_time_or_is_shown_as_it_is(value: float | None) -> None:
    assert shown.time(value)
