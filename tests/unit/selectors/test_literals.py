"""Literals, names, keywords, blanks and brackets (JMS 2.0, section 3.8.1.1)."""

import pytest

from quire.selectors.values import LARGEST, Value
from tests.unit.selectors.asking import ask, ask_message


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57),
        ("0", 0),
        ("57L", 57),
        ("57l", 57),
        ("0x1F", 31),
        ("0X1fL", 31),
        ("017", 15),
        ("017L", 15),
        ("+62", 62),
        ("-957", -957),
        ("- 957", -957),
        ("- -5", 5),
        ("-+-+5", 5),
        ("-0x10", -16),
        ("9223372036854775807", LARGEST),
        ("-9223372036854775808", -LARGEST - 1),
        ("-0x8000000000000000", -LARGEST - 1),
        ("7.", 7.0),
        ("-95.7", -95.7),
        ("+6.2", 6.2),
        (".5", 0.5),
        ("7E3", 7000.0),
        ("7e3", 7000.0),
        ("-57.9E2", -5790.0),
        ("1.E+1", 10.0),
        (".5e-1", 0.05),
        ("09.5", 9.5),
        ("1.5f", 1.5),
        ("1.5D", 1.5),
        ("5d", 5.0),
        ("1e308", 1e308),
    ],
)
def test_numbers_are_written_as_in_java(literal: str, value: float) -> None:
    assert ask(f"n = {literal}", n=value) is True
    assert ask(f"{literal} = n", n=value) is True
    assert ask(f"n <> {literal}", n=value) is False
    assert ask(f"n = {literal}", n=value + 1 if abs(value) < 1e15 else 0) is False


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'red'", "red"),
        ("''", ""),
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("'grün ✓'", "grün ✓"),
        ("'two\nlines'", "two\nlines"),
        ("'-- no comment'", "-- no comment"),
        ("'\"'", '"'),
        ("TRUE", True),
        ("true", True),
        ("False", False),
    ],
)
def test_texts_and_truths(literal: str, value: Value) -> None:
    assert ask(f"h = {literal}", h=value) is True
    assert ask(f"{literal} <> h", h=value) is False


def test_case_counts_in_texts() -> None:
    assert ask("h = 'Red'", h="red") is False


@pytest.mark.parametrize(
    "name", ["color", "_color", "$color", "c0l_$r", "größe", "orders", "island", "nothing", "truely", "\u0131n"]
)
def test_names_are_java_identifiers(name: str) -> None:
    assert ask(f"{name} = 'red'", **{name: "red"}) is True


def test_case_counts_in_names() -> None:
    assert ask("Color = 'red'", color="red", COLOR="red") is None


@pytest.mark.parametrize(
    ("quoted", "name"),
    [
        ('"content-type"', "content-type"),
        ('"x.y"', "x.y"),
        ('"in"', "in"),
        ('"7th"', "7th"),
        ('"say ""hi"""', 'say "hi"'),
        ('"a b"', "a b"),
    ],
)
def test_names_that_are_no_identifiers_stand_in_double_quotes(quoted: str, name: str) -> None:
    assert ask(f"{quoted} = 'red' AND {quoted} IS NOT NULL", **{name: "red"}) is True


@pytest.mark.parametrize(
    "text",
    [
        "NOT h IS NULL AND h LIKE 'r%' OR h IN ('x') AND n BETWEEN 1 AND 2",
        "not h is null and h like 'r%' or h in ('x') and n between 1 and 2",
        "Not h Is Null And h Like 'r%' oR h iN ('x') aNd n bEtween 1 anD 2",
    ],
)
def test_case_does_not_count_in_keywords(text: str) -> None:
    assert ask(text, h="red") is True
    assert ask(text, h="x", n=3) is False


@pytest.mark.parametrize("text", [" h  =\t'red' ", "\r\nh\f=\n'red'\n", "h='red'", "((h)=('red'))", "(((h = 'red')))"])
def test_blanks_and_brackets_do_not_count(text: str) -> None:
    assert ask(text, h="red") is True


@pytest.mark.parametrize("text", ["", "  ", "\t\r\n", "convert_string_expressions:", "convert_string_expressions: "])
def test_an_empty_selector_is_true_for_every_message(text: str) -> None:
    assert ask(text) is True
    assert ask_message(text) is True


@pytest.mark.parametrize("text", ["convert_string_expressions:price > 5", "convert_string_expressions: price > 5"])
def test_the_prefix_of_activemq_changes_nothing_for_a_message_without_types(text: str) -> None:
    assert ask_message(text, price="17") is True
    assert ask_message(text, price="3") is False
