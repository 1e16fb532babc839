"""What is refused when it is presented, where it is wrong, and the limits."""

import pytest

from quire.errors import InvalidSelector
from quire.selectors import Selector, selector
from quire.selectors.parser import MAX_LENGTH, MAX_NAME, MAX_NESTING, MAX_PATTERNS
from quire.selectors.values import MAX_PATTERN
from tests.unit.selectors.asking import ask, evaluate


def refused(text: str) -> InvalidSelector:
    """The error about a selector."""
    with pytest.raises(InvalidSelector) as caught:
        Selector(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("price >", 8, "a header, a number"),
        ("= 5", 1, "a header, a number"),
        ("price > > 5", 9, "a header, a number"),
        ("price 5", 7, "an operator, AND, OR"),
        ("a = 1 b = 2", 7, "an operator, AND, OR"),
        ("a = b = c", 7, "an operator, AND, OR"),
        ("a AND", 6, "a header, a number"),
        ("a = 1 AND OR b", 11, "a header, a number"),
        ("(a = 1", 7, ") is missing"),
        ("a = 1)", 6, "an operator, AND, OR"),
        ("()", 2, "a header, a number"),
        ("a = NULL", 5, "IS NULL"),
        ("NULL", 1, "IS NULL"),
        ("a IS 5", 6, "NULL is missing"),
        ("a IS NOT", 9, "NULL is missing"),
        ("5 IS NULL", 1, "IS needs the name of a header"),
        ("a NOT 5", 7, "BETWEEN, IN or LIKE is missing"),
        ("a BETWEEN 1", 12, "AND is missing"),
        ("a BETWEEN 1 AND", 16, "a header, a number"),
        ("a BETWEEN 'x' AND 'y'", 11, "a number or a header is needed"),
        ("'x' BETWEEN 1 AND 2", 1, "a number or a header is needed"),
        ("a IN 'x'", 6, "( is missing"),
        ("a IN ()", 7, "a text in single quotes"),
        ("a IN ('x',)", 11, "a text in single quotes"),
        ("a IN (1, 2)", 7, "a text in single quotes"),
        ("a IN ('x'", 10, ") is missing"),
        ("'x' IN ('x')", 1, "IN needs the name of a header"),
        ("a + 1 IN ('x')", 1, "IN needs the name of a header"),
        ("a LIKE b", 8, "a text in single quotes"),
        ("a LIKE 5", 8, "a text in single quotes"),
        ("5 LIKE '5'", 1, "LIKE needs the name of a header"),
        ("a LIKE 'x' ESCAPE", 18, "a text in single quotes"),
        ("a LIKE 'x' ESCAPE ''", 19, "one character"),
        ("a LIKE 'x' ESCAPE '!!'", 19, "one character"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "nothing follows"),
        ("5", 1, "is a number and not a condition"),
        ("'red'", 1, "is a text and not a condition"),
        ("a + 1", 1, "is a number and not a condition"),
        ("NOT 5", 5, "is a number and not a condition"),
        ("-a", 1, "is a number and not a condition"),
        ("a AND 5", 7, "is a number and not a condition"),
        ("'x' OR a", 1, "is a text and not a condition"),
        ("a = 1 OR (b + 1)", 10, "is a number and not a condition"),
        ("'x' + 1 = 2", 1, "this is a text"),
        ("1 + 'x' = 2", 5, "this is a text"),
        ("1 + TRUE = 2", 5, "this is a condition"),
        ("(a = 1) * 2 = 2", 1, "this is a condition"),
        ("-'x' = 2", 2, "this is a text"),
        ("-(a = 1) = 2", 2, "this is a condition"),
        ("content-type = 'x'", 14, "a number and a text are never equal"),
        ("TRUE = 1", 6, "a condition and a number are never equal"),
        ("'true' = TRUE", 8, "a text and a condition are never equal"),
        ("a > 'x'", 3, "only numbers have an order"),
        ("a <= TRUE", 3, "only numbers have an order"),
        ("'a' < 'b'", 5, "only numbers have an order"),
        ("a # b", 3, "'#' has no meaning"),
        ("a != b", 3, "<>"),
        ("a = 'red", 5, "has no end"),
        ("a = 'red''", 5, "has no end"),
        ('"a-b = 5', 1, "has no end"),
        ('a = "red"', 5, "texts stand in single quotes"),
        ('"" = 5', 1, "texts stand in single quotes"),
        ("a = 08", 5, "this is not a number"),
        ("a = 5x", 5, "this is not a number"),
        ("a = 0x", 5, "this is not a number"),
        ("a = 1_000", 5, "this is not a number"),
        ("a = 1.5.2", 5, "this is not a number"),
        ("a = 1e", 5, "this is not a number"),
        ("a.b = 1", 2, "names with a dot"),
        ("a = 9223372036854775808", 5, "beyond 9223372036854775807"),
        ("a = - -9223372036854775808", 8, "beyond 9223372036854775807"),
        ("a = -9223372036854775809", 6, "beyond 9223372036854775807"),
        ("a = 0xFFFFFFFFFFFFFFFF", 5, "beyond 9223372036854775807"),
        ("a = " + "9" * 50, 5, "beyond 9223372036854775807"),
        ("a = 1e400", 5, "beyond Java's double"),
        ("a = 1 -- no comment", 13, "is missing"),
        ("a = 1 /* comment */", 8, "is missing"),
        ("convert_string_expressions:a >", 31, "a header, a number"),
        ("aND", 1, "a header, a number"),
    ],
)
def test_a_wrong_selector_is_refused_with_the_place(text: str, position: int, what: str) -> None:
    error = refused(text)
    assert what in str(error)
    assert error.data == {"selector": text, "position": position}
    assert f"at character {position}" in str(error) or (position == len(text) + 1 and "at the end" in str(error))


@pytest.mark.parametrize("literal", ["9" * 5000, "0x" + "F" * 5000, "-" + "9" * 5000])
def test_a_number_of_thousands_of_digits_is_out_of_range(literal: str) -> None:
    assert "beyond 9223372036854775807" in str(refused(f"a = {literal}"))


def test_the_error_shows_what_stands_around_the_place() -> None:
    error = refused("a = 1 AND " * 30 + "b ? c" + " AND a = 1" * 30)
    assert "near '= 1 AND a = 1 AND a = 1 AND b ? c AND a = 1 AND a = 1 AND a '" in str(error)
    assert refused("a = 1 AND " * 30).data["position"] == 301


def test_a_selector_may_have_so_many_characters_and_no_more() -> None:
    longest = "a IN ('" + "x" * (MAX_LENGTH - 9) + "')"
    assert len(longest) == MAX_LENGTH
    assert ask(longest, a="y") is False
    assert str(MAX_LENGTH) in str(refused(longest + " "))


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_name_may_have_so_many_characters_and_no_more(quote: str) -> None:
    name = ("-" if quote else "a") * MAX_NAME
    assert ask(f"{quote}{name}{quote} IS NULL") is True
    assert str(MAX_NAME) in str(refused(f"{quote}{name}-{quote} IS NULL" if quote else f"{name}a IS NULL"))


def test_a_pattern_may_have_so_many_characters_and_no_more() -> None:
    assert ask(f"a LIKE '{'x' * MAX_PATTERN}'", a="x") is False
    assert str(MAX_PATTERN) in str(refused(f"a LIKE '{'x' * (MAX_PATTERN + 1)}'"))


def test_brackets_may_be_nested_so_deep_and_no_deeper() -> None:
    def nested(depth: int, left: str, inner: str) -> str:
        return left * depth + inner + ")" * depth

    assert ask(nested(MAX_NESTING, "(", "a = 1"), a=1) is True
    assert ask(nested(MAX_NESTING, "NOT (", "a = 1"), a=1) is (MAX_NESTING % 2 == 0)
    assert ask(nested(MAX_NESTING, "-(", "a") + " = 1", a=1) is (MAX_NESTING % 2 == 0)
    error = refused(nested(MAX_NESTING + 1, "(", "a = 1"))
    assert "nested" in str(error)
    assert error.data["position"] == MAX_NESTING + 1


@pytest.mark.parametrize(
    "text",
    [
        "a = 1" + " OR a = 1" * 1000,
        "a = 1" + " AND a = 1" * 900,
        "(a = 1)" + " AND (a = 1)" * 800,
        "a" + " + a - a" * 1200 + " = 1",
        "a" + " * a" * 2000 + " = 1",
        "NOT " * 2000 + "a = 1",
        "-" * 9000 + "a = 1",
        "a IN (" + "'x', " * 1900 + "'x') OR a = 1",
    ],
)
def test_what_is_long_but_not_deep_is_fine(text: str) -> None:
    assert ask(text, a=1) is True


def test_equal_texts_share_a_selector() -> None:
    assert selector("color = 'shared'") is selector("color = 'shared'")
    assert selector("color = 'shared'").text == "color = 'shared'"
    assert repr(selector("a = 1")) == "Selector('a = 1')"


def test_a_wrong_selector_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidSelector):
            selector("color =")


def test_a_long_selector_is_not_kept() -> None:
    text = "a = 1" + " OR a = 1" * 100
    assert selector(text) is not selector(text)
    assert evaluate(text, {"a": 1}.get) is True


def test_all_patterns_together_may_have_so_many_characters_and_no_more() -> None:
    whole = [f"a LIKE '{'x' * MAX_PATTERN}'"] * (MAX_PATTERNS // MAX_PATTERN)
    assert ask(" OR ".join(whole), a="x") is False
    error = refused(" OR ".join([*whole, "a LIKE 'x'"]))
    assert str(MAX_PATTERNS) in str(error)
