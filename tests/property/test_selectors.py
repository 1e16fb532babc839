"""Properties of selectors: SQLite, which has the same logic, says the same; and any text is borne.

SQLite parses and evaluates on its own. Where its rules are those of JMS 2.0, section 3.8 (logic with NULL, precedence,
numbers, LIKE, IN, BETWEEN), selectors are made up for both. What is JMS's alone (types that must not be mixed, Java's
range of numbers) is left out of them.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quire.errors import InvalidSelector
from quire.message import Message, header_lines
from quire.selectors import Selector
from quire.selectors.parser import parse
from quire.selectors.values import LARGEST, Text, Value
from tests.unit.selectors.asking import evaluate, jms_message_of

NUMBERS, TEXTS, TRUTHS = ("n1", "n2", "n3"), ("t1", "t2"), ("b1", "b2")
QUARTERS = st.integers(-40, 40).map(lambda quarters: quarters / 4)
"""Doubles that stay exact in what is calculated here."""

SHORT_TEXTS = st.text("aAb%_!'", max_size=4)
ROWS = st.fixed_dictionaries(
    dict.fromkeys(NUMBERS, st.none() | st.integers(-20, 20) | QUARTERS)
    | dict.fromkeys(TEXTS, st.none() | SHORT_TEXTS)
    | dict.fromkeys(TRUTHS, st.none() | st.booleans())
)


def quoted(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def joined(draw: st.DrawFn, part: Callable[[], str], operators: tuple[str, ...]) -> str:
    """One to three parts with operators of one precedence between them."""
    text = part()
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 1, 2)))):
        text = f"{text} {draw(st.sampled_from(operators))} {part()}"
    return text


def numeric(draw: st.DrawFn, depth: int) -> str:
    """A calculation, so small that nothing leaves 64 bits."""

    def operand() -> str:
        choice = draw(st.integers(0, 5 if depth else 3))
        if choice == 0:
            return str(draw(st.integers(-9, 9)))
        if choice == 1:
            return str(draw(QUARTERS))
        if choice <= 3:
            return draw(st.sampled_from(NUMBERS))
        return ("- " if choice == 4 else "") + f"({numeric(draw, depth - 1)})"

    return joined(draw, lambda: joined(draw, operand, ("*", "/")), ("+", "-"))


def about_text(draw: st.DrawFn) -> str:
    """A condition on a text."""
    name, opposite = draw(st.sampled_from(TEXTS)), draw(st.sampled_from(("", "NOT ")))
    match draw(st.integers(0, 4)):
        case 0:
            other = draw(st.sampled_from(TEXTS) | SHORT_TEXTS.map(quoted))
            return f"{name} {draw(st.sampled_from(('=', '<>')))} {other}"
        case 1:
            return f"{name} {opposite}IN ({', '.join(draw(st.lists(SHORT_TEXTS.map(quoted), min_size=1, max_size=3)))})"
        case 2:
            return f"{name} {opposite}LIKE {quoted(draw(SHORT_TEXTS))}"
        case 3:
            pattern = draw(st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!", "!a"]), max_size=5))
            return f"{name} {opposite}LIKE {quoted(''.join(pattern))} ESCAPE '!'"
        case _:
            return f"{draw(st.sampled_from((*TEXTS, *NUMBERS, *TRUTHS)))} IS {opposite}NULL"


def simple(draw: st.DrawFn, depth: int) -> str:
    """A condition without AND, OR and NOT, or one in brackets."""
    match draw(st.integers(0, 6 if depth else 4)):
        case 0:
            # Two headers are compared as texts if they are texts, so one of the sides is a calculation.
            operator = draw(st.sampled_from(("=", "<>", "<", "<=", ">", ">=")))
            return f"{numeric(draw, 1)} {operator} 0 + {numeric(draw, 1)}"
        case 1:
            opposite = draw(st.sampled_from(("", "NOT ")))
            return f"{numeric(draw, 1)} {opposite}BETWEEN {numeric(draw, 0)} AND {numeric(draw, 0)}"
        case 2 | 3:
            return about_text(draw)
        case 4:
            name = draw(st.sampled_from(TRUTHS))
            return draw(st.sampled_from((name, f"{name} = TRUE", f"FALSE <> {name}", "TRUE")))
        case 5:
            return f"({condition(draw, depth - 1)})"
        case _:
            return f"({condition(draw, depth - 1)}) = ({condition(draw, depth - 1)})"


def condition(draw: st.DrawFn, depth: int) -> str:
    """A condition."""

    def opposite() -> str:
        return draw(st.sampled_from(("", "", "NOT ", "NOT NOT "))) + simple(draw, depth)

    return joined(draw, lambda: joined(draw, opposite, ("AND",)), ("OR",))


SELECTORS = st.composite(lambda draw: condition(draw, 2))()


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    """A database without tables; LIKE minds the case, as JMS wants it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA case_sensitive_like = ON")
        yield connection


def said_by(sqlite: sqlite3.Connection, text: str, row: dict[str, Value]) -> bool | None:
    """What SQLite says of a condition."""
    columns = ", ".join(f"? AS {name}" for name in row)
    [[answer]] = sqlite.execute(f"SELECT {text} FROM (SELECT {columns})", tuple(row.values()))
    return None if answer is None else bool(answer)


def message_of(row: dict[str, Value], names: list[str]) -> Message:
    """A message with a row's values as texts; NULL is no header."""
    headers = {name: str(row[name]) for name in names if row[name] is not None}
    return Message(1, header_lines({"message-id": "m", "timestamp": "1"} | headers) + b"\nn1:1\n")


@pytest.mark.slow
@given(SELECTORS, ROWS)
def test_sqlite_says_the_same(sqlite: sqlite3.Connection, text: str, row: dict[str, Value]) -> None:
    assert evaluate(text, row.get) is said_by(sqlite, text, row)


@pytest.mark.slow
@given(SELECTORS, ROWS, st.permutations((*NUMBERS, *TEXTS, *TRUTHS)))
def test_sqlite_says_the_same_of_headers_that_are_texts(
    sqlite: sqlite3.Connection, text: str, row: dict[str, Value], names: list[str]
) -> None:
    assert Selector(text).matches(message_of(row, names)) is (said_by(sqlite, text, row) is True)


@pytest.mark.slow
@given(SELECTORS, ROWS)
def test_sqlite_says_the_same_of_properties_that_have_types(
    sqlite: sqlite3.Connection, text: str, row: dict[str, Value]
) -> None:
    message = jms_message_of({name: value for name, value in row.items() if value is not None})
    assert Selector(text).matches(message) is (said_by(sqlite, text, row) is True)


MIXED = st.dictionaries(
    st.sampled_from(["n1", "n2", "t1", "t2", "b1", "b2"]),
    st.integers(-3, 3) | QUARTERS | st.booleans() | st.sampled_from(["1", "-2.5", "true", "a", ""]),
)
"""Properties of any type, whatever their names."""


@pytest.mark.slow
@given(SELECTORS, MIXED)
def test_properties_of_any_types_are_what_the_selector_is_told_they_are(text: str, row: dict[str, Value]) -> None:
    typed = {name: Text(value) if isinstance(value, str) else value for name, value in row.items()}
    assert Selector(text).matches(jms_message_of(dict(row))) is (evaluate(text, typed.get) is True)


@pytest.mark.slow
@given(SELECTORS)
def test_case_of_keywords_and_more_blanks_change_nothing(text: str) -> None:
    parts = re.split("('(?:[^']|'')*')", text)  # what stands in quotes is at the odd places
    same = "".join([part if place % 2 else part.lower().replace(" ", "\r\n\t ") for place, part in enumerate(parts)])
    assert parse(same) == parse(text)


@pytest.mark.slow
@given(st.text(), st.text(max_size=99).map("-".__add__), st.text())
def test_texts_and_names_come_back_from_quotes_and_from_messages(value: str, name: str, other: str) -> None:
    message = Message(1, header_lines({"message-id": "m", "timestamp": "1", name: value}) + b"\n" + other.encode())
    quoted_name = '"' + name.replace('"', '""') + '"'
    assert Selector(f"{quoted_name} = {quoted(value)}").matches(message)
    assert Selector(f"{quoted_name} = {quoted(other)}").matches(message) is (value == other)


@given(st.integers(-LARGEST - 1, LARGEST) | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_from_literals_and_from_texts(number: float) -> None:
    assert evaluate(f"n = {number!r}", {"n": number}.get) is True
    row: dict[str, Value] = {"n": number, "m": repr(number)}
    assert evaluate("n = m", row.get) is True


VALUES = st.none() | st.booleans() | st.integers(-LARGEST - 1, LARGEST) | st.floats() | st.text() | SHORT_TEXTS
WORDS = """n t b AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE ( ) , = <> < <= > >= + - * / 0 7 1.5 2e3 0x1F 017
    '' 'a%' '!' "a-b" 9223372036854775807 1e308 convert_string_expressions: ' " . ; !"""
TOKENS = st.sampled_from(WORDS.split())
SOUP = st.lists(TOKENS, max_size=14).map(" ".join) | st.lists(TOKENS | st.characters(), max_size=14).map("".join)


def read(text: str) -> Selector | InvalidSelector:
    """The selector of a text, or why it is none."""
    try:
        return Selector(text)
    except InvalidSelector as error:
        return error


@pytest.mark.slow
@given(st.text() | SOUP, st.dictionaries(st.sampled_from(["n", "t", "b", "a-b"]), VALUES))
@example("n / t * b - n > n", {"n": -LARGEST - 1, "t": -1, "b": 1e308})
def test_any_text_is_a_selector_or_refused_and_any_value_is_borne(text: str, row: dict[str, Value]) -> None:
    selector = read(text)
    if isinstance(selector, InvalidSelector):
        assert selector.data["selector"] == text
        assert 1 <= selector.data["position"] <= len(text) + 1
    else:
        assert evaluate(text, row.get) in (True, False, None)
        assert selector.matches(message_of({"n": "7", "t": "red", "b": "true"}, ["t", "n", "b"])) in (True, False)
