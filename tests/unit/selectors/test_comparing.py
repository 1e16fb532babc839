"""What is compared with what, and as what (JMS 2.0, section 3.8.1.1, "Comparison operators")."""

import pytest

from quire.selectors.values import Value
from tests.unit.selectors.asking import ask

LARGE = 2**53 + 1
"""The smallest whole number that a double cannot hold."""

NO_NUMBERS = [
    "", " ", " 5", "5 ", "1 2", "red", "1,5", "0x10", "5L", "1.5f", "1_000", "\u0665", "\u00bd", "--5", "+", ".", "e5",
    "1e", "inf", "NaN", "1e999", "9223372036854775808", "-9223372036854775809", "9" * 30, "9" * 50,
]  # fmt: skip
"""Texts that may look like numbers and are none, or are out of range."""


@pytest.mark.parametrize(
    ("operator", "less", "equal", "more"),
    [
        ("=", False, True, False),
        ("<>", True, False, True),
        ("<", True, False, False),
        ("<=", True, True, False),
        (">", False, False, True),
        (">=", False, True, True),
    ],
)
@pytest.mark.parametrize("five", [5, 5.0, "5", "5.0", "+5", "05", "5.", "50e-1"])
def test_numbers_have_an_order(operator: str, less: bool, equal: bool, more: bool, five: Value) -> None:
    assert ask(f"n {operator} 7", n=five) is less
    assert ask(f"n {operator} 5", n=five) is equal
    assert ask(f"n {operator} 3", n=five) is more
    assert ask(f"3.0 {operator} n", n=five) is less
    assert ask(f"n {operator} 2 + 3", n=five) is equal


@pytest.mark.parametrize(
    ("text", "headers", "outcome"),
    [
        # Two whole numbers are compared as such; with a double in it, both are doubles (Java's binary promotion).
        ("n = 9007199254740992", {"n": LARGE}, False),
        ("n = 9007199254740992.0", {"n": LARGE}, True),
        ("n > 9007199254740992.0", {"n": LARGE}, False),
        ("n = m", {"n": LARGE, "m": float(LARGE)}, True),
        ("n = 9007199254740992", {"n": str(LARGE)}, False),
        ("n = 9007199254740992.0", {"n": str(LARGE)}, True),
        ("n = 0", {"n": -0.0}, True),
    ],
)
def test_whole_numbers_are_exact_and_promoted_when_they_meet_a_double(
    text: str, headers: dict[str, Value], outcome: bool
) -> None:
    assert ask(text, **headers) is outcome


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize(
    "text", ["n = 5", "n <> 5", "n > 5", "5 < n", "n BETWEEN 1 AND 9", "n NOT BETWEEN 1 AND 9", "n + 1 > 5"]
)
def test_a_text_that_reads_as_no_number_makes_a_condition_unknown(text: str, value: str) -> None:
    assert ask(text, n=value) is None
    assert ask(f"NOT ({text})", n=value) is None


@pytest.mark.parametrize(
    "value", ["9223372036854775807", "-9223372036854775808", "000000000000000000000000000000000005"]
)
def test_a_text_of_64_bits_reads_as_a_whole_number(value: str) -> None:
    assert ask(f"n = {int(value)}", n=value) is True


@pytest.mark.parametrize("value", [True, "true", "TRUE", "True"])
def test_a_text_counts_as_true(value: Value) -> None:
    assert ask("h = TRUE", h=value) is True
    assert ask("FALSE <> h", h=value) is True
    assert ask("h <> TRUE", h=value) is False
    assert ask("h", h=value) is True
    assert ask("NOT h", h=value) is False
    assert ask("h = (1 < 2)", h=value) is True


@pytest.mark.parametrize("value", [False, "false", "FALSE", "False"])
def test_a_text_counts_as_false(value: Value) -> None:
    assert ask("h = FALSE", h=value) is True
    assert ask("h = TRUE", h=value) is False
    assert ask("h", h=value) is False
    assert ask("NOT h", h=value) is True


@pytest.mark.parametrize("value", ["", "yes", "1", " true", None])
def test_what_reads_as_neither_makes_a_condition_unknown(value: Value) -> None:
    assert ask("h", h=value) is None
    assert ask("h = TRUE", h=value) is None
    assert ask("h <> TRUE", h=value) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("h = 'red'", 5),
        ("h = '5'", 5),
        ("h <> 'red'", 5),
        ("h <> 'red'", True),
        ("h = 'true'", True),
        ("h = 1", True),
        ("h <> 1", True),
        ("h < 1", False),
        ("h > 0.5", True),
        ("h = TRUE", 1),
        ("h <> TRUE", 0.0),
        ("h", 1),
        ("h BETWEEN 0 AND 1", True),
        ("h NOT BETWEEN 0 AND 1", True),
        ("h IN ('5')", 5),
        ("h LIKE '%'", 5),
    ],
)
def test_to_compare_unlike_types_is_false(text: str, value: Value) -> None:
    assert ask(text, h=value) is False


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("1", "1.0", False),
        ("1", 1, True),
        (1.0, "1", True),
        (2, 2.0, True),
        ("true", True, True),
        (False, "FALSE", True),
        (True, True, True),
        (True, False, False),
        ("a", 1, None),
        ("a", True, None),
        (None, "a", None),
        (None, None, None),
        (1, None, None),
    ],
)
def test_headers_are_compared_as_texts_if_both_are_else_as_what_the_other_is(
    left: Value, right: Value, equal: bool | None
) -> None:
    assert ask("a = b", a=left, b=right) is equal
    assert ask("a <> b", a=left, b=right) is (None if equal is None else not equal)


@pytest.mark.parametrize("operator", ["=", "<>"])
def test_a_number_and_a_truth_are_unlike(operator: str) -> None:
    assert ask(f"a {operator} b", a=1, b=True) is False
    assert ask(f"a {operator} b", a=False, b=0) is False


def test_the_order_of_two_headers_is_that_of_numbers() -> None:
    assert ask("a < b", a="9", b="10") is True
    assert ask("a < b", a="x", b="y") is None
    assert ask("a < b", a=False, b=True) is False


@pytest.mark.parametrize(
    "text", ["n = 5", "5 <> n", "n < 5", "h = 'red'", "h <> 'red'", "t = TRUE", "n = m", "n + 1 = 5"]
)
def test_null_makes_a_comparison_unknown(text: str) -> None:
    assert ask(text) is None
    assert ask(f"NOT ({text})") is None


@pytest.mark.parametrize(
    ("value", "between"), [(14, False), (15, True), (17.5, True), (19, True), (19.1, False), ("15", True), (None, None)]
)
def test_between_takes_in_its_ends(value: Value, between: bool | None) -> None:
    assert ask("age BETWEEN 15 AND 19", age=value) is between
    assert ask("age NOT BETWEEN 15 AND 19", age=value) is (None if between is None else not between)
    assert ask("age + 0 BETWEEN 10 + 5 AND 20 - 1", age=value) is between


@pytest.mark.parametrize(
    ("low", "high", "between"),
    [(1, None, None), (9, None, False), (None, 9, None), (None, 1, False), (None, None, None), (9, 1, False)],
)
def test_between_with_an_unknown_end_may_be_false_all_the_same(low: Value, high: Value, between: bool | None) -> None:
    assert ask("5 BETWEEN low AND high", low=low, high=high) is between
    assert ask("5 NOT BETWEEN low AND high", low=low, high=high) is (None if between is None else not between)


def test_a_text_of_thousands_of_digits_is_no_number() -> None:
    assert ask("n > 0", n="9" * 10_000) is None
    assert ask("n > 0", n="0" * 10_000 + ".5") is True
