"""IN, LIKE and IS NULL (JMS 2.0, section 3.8.1.1)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.message import Message
from quire.selectors import Selector
from quire.selectors import values as values_module
from quire.selectors.values import LikePattern, Value
from tests.unit.selectors.asking import ask


@pytest.mark.parametrize(
    ("country", "within"), [("UK", True), ("US", True), ("Peru", False), ("", False), ("uk", False), (None, None)]
)
def test_in(country: str | None, within: bool | None) -> None:
    assert ask("Country IN ('UK', 'US', 'France')", Country=country) is within
    assert ask("Country NOT IN ('UK','US','France')", Country=country) is (None if within is None else not within)


def test_in_takes_one_text_and_the_same_twice() -> None:
    assert ask("h IN ('it''s')", h="it's") is True
    assert ask("h IN ('a', 'a')", h="a") is True


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("12%3", ["123", "12993", "1233"], ["1234", "0123", "12"]),
        ("l_se", ["lose", "l_se", "lüse", "l\nse"], ["loose", "lse", "LOSE"]),
        ("%", ["", "a", "a\nb"], []),
        ("_", ["a", "%", "ü"], ["", "ab"]),
        ("", [""], ["a"]),
        ("%%", ["", "a"], []),
        ("a%", ["a", "ab", "a\nb"], ["", "ba"]),
        ("%a", ["a", "ba", "aa"], ["", "ab"]),
        ("%a%", ["a", "bab"], ["", "b"]),
        ("%ab%ab%", ["abab", "xabyabz"], ["ab", "aab", "aba"]),
        ("a%a", ["aa", "aba", "aaa"], ["a", "ab"]),
        ("%_", ["a", "ab"], [""]),
        ("_%_", ["ab", "abc"], ["a", ""]),
        ("%b_%c", ["bxc", "abbcc", "b1b2c"], ["bc", "b1"]),
        (".*", [".*"], ["ab", ""]),
        ("[a-z]+(x)?\\", ["[a-z]+(x)?\\"], ["ax"]),
        ("^a$", ["^a$"], ["a"]),
        ("a\nb", ["a\nb"], ["a b", "a\nb\n"]),
    ],
)
def test_like(pattern: str, matching: list[str], others: list[str]) -> None:
    for text in matching:
        assert ask(f"h LIKE '{pattern}'", h=text) is True
        assert ask(f"h NOT LIKE '{pattern}'", h=text) is False
    for text in others:
        assert ask(f"h LIKE '{pattern}'", h=text) is False
        assert ask(f"h NOT LIKE '{pattern}'", h=text) is True


@pytest.mark.parametrize(
    ("pattern", "escape", "matching", "others"),
    [
        (r"\_%", "\\", ["_foo", "_"], ["foo", r"\_"]),
        (r"\%", "\\", ["%"], ["a", r"\%"]),
        (r"\\", "\\", ["\\"], [r"\\"]),
        (r"a\bc", "\\", ["abc"], [r"a\bc"]),
        ("_D7xlJIQn$_", "$", ["BD7xlJIQn_"], ["BD7xlJIQnx"]),
        ("100!%", "!", ["100%"], ["1000"]),
        ("%%", "%", ["%"], ["", "a"]),
        ("____", "_", ["__"], ["ab", "____"]),
        ("''a", "''", ["a"], ["'a"]),
    ],
)
def test_like_with_escape(pattern: str, escape: str, matching: list[str], others: list[str]) -> None:
    for text in matching:
        assert ask(f"h LIKE '{pattern}' ESCAPE '{escape}'", h=text) is True
    for text in others:
        assert ask(f"h LIKE '{pattern}' ESCAPE '{escape}'", h=text) is False
        assert ask(f"h NOT LIKE '{pattern}' ESCAPE '{escape}'", h=text) is True


def test_like_is_unknown_without_the_header() -> None:
    assert ask("h LIKE '%'") is None
    assert ask("h NOT LIKE '%'") is None


@pytest.mark.parametrize("value", ["", "x", 0, False])
def test_is_null_asks_whether_the_header_is_there(value: Value) -> None:
    assert ask("h IS NULL", h=value) is False
    assert ask("h IS NOT NULL", h=value) is True
    assert ask("h IS NULL") is True
    assert ask("h IS NOT NULL") is False


@pytest.mark.parametrize(
    "pattern", ["%a" * 249 + "%b", "%" + "a_" * 248 + "b%", "%" + "a" * 498 + "b", "%_" * 249 + "b"]
)
def test_like_goes_through_a_long_text_once_for_each_character_of_the_pattern_at_most(pattern: str) -> None:
    # With backtracking into what was matched this would not end.
    assert ask(f"h LIKE '{pattern}'", h="a" * 10_000) is False


def naive(pattern: str, text: str) -> bool:
    """LIKE, one character of the pattern after the other: which ends of the text it may have reached."""
    reached = {0}
    for character in pattern:
        if character == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(text) and character in ("_", text[at])}
    return len(text) in reached


@pytest.mark.parametrize("quick", [0, values_module.QUICK])
@given(pattern=st.text("ab_%", max_size=12), text=st.text("ab\n", max_size=14))
def test_like_is_what_the_standard_says(pattern: str, text: str, quick: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values_module, "QUICK", quick)
        assert LikePattern(pattern, None).matches(text) is naive(pattern, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%" + "a" * 497 + "b%", "a" * 10_000), ("%" + "a_" * 248 + "%b", "a" * 10_000),
        ("%" + "ab_" * 166 + "%", "ab" * 5000), ("%" + "_a" * 248 + "b%", "ab" * 5000 + "b" * 500),
        ("%" + "a" * 240 + "_b%", "a" * 9000), ("%a_b" * 124 + "%", "ab" * 5000),
    ],
)  # fmt: skip
def test_many_patterns_on_a_long_header_do_not_stop_the_loop(pattern: str, text: str) -> None:
    """Ninety consumers with the longest patterns, and the longest header of STOMP: 1.2 s when each place was tried."""
    selectors = [Selector(f"h LIKE '{pattern}'") for _ in range(94)]
    message = Message(1, f"message-id:1\ntimestamp:1\nh:{text}\n\n".encode(), 0, 4, True)

    def seconds() -> float:
        began = time.process_time()
        for selector in selectors:
            selector.matches(message)
        return time.process_time() - began

    assert min([seconds() for _ in range(3)]) < 0.1
