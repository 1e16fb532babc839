"""From a selector's text to its tokens (JMS 2.0, section 3.8.1.1)."""

import math
import re
from enum import Enum, auto
from typing import NamedTuple

from quire.errors import InvalidSelector
from quire.selectors.values import LARGEST

MAX_LENGTH = 10_000
"""The longest selector, in characters."""

MAX_NAME = 500
"""The longest name of a header, in characters."""

PREFIX = "convert_string_expressions:"
"""ActiveMQ's wish that texts count as numbers where need be, in messages that have types too."""

_KEYWORDS = frozenset({"AND", "BETWEEN", "ESCAPE", "IN", "IS", "LIKE", "NOT", "NULL", "OR"})
_TRUTHS = {"TRUE": True, "FALSE": False}

_NAME = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
_TOKEN = re.compile(
    rf"""[ \t\f\r\n]*(?:
        (?P<name>{_NAME.pattern})
      | "(?P<quoted>[^"]*(?:""[^"]*)*)"(?!")
      | '(?P<text>[^']*(?:''[^']*)*)'(?!')
      | (?P<number>
            (?: (?P<approximate>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+|[0-9]+(?=[fd]))[fd]?
              | (?P<whole>0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)l?
            )(?![\w$.])
        )
      | (?P<symbol><>|<=|>=|[=<>+\-*/(),])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_MAX_DIGITS = 40
"""A whole number within 64 bits needs 22 octal digits; some leading zeros do no harm."""

_ADVICE = {
    "'": "the text that begins here has no end: end it with a single quote, and write a quote inside it twice",
    '"': "the name that begins here has no end: end it with a double quote",
    "!": "'!' has no meaning: write <> for unequal, NOT for the opposite",
} | dict.fromkeys(
    "0123456789.",
    "this is not a number: write 10, 0x0A, 012 (octal), 1.5 or 1E3; names with a dot stand in double quotes",
)


OUT_OF_RANGE = f"the whole number is beyond {LARGEST}, Java's largest: write 1E30 for an approximate one"


class Sort(Enum):
    """What a token is."""

    NAME = auto()
    LITERAL = auto()
    MARK = auto()
    END = auto()


class Token(NamedTuple):
    """A word of a selector.

    Attributes:
        sort: what it is.
        value: the name of a header, the value of a literal, a symbol, or a keyword in capitals. A whole number may be
            one above ``LARGEST``: a minus may stand before it.
        position: where it begins, from 0.
    """

    sort: Sort
    value: int | float | bool | str
    position: int


def tokens(text: str) -> list[Token]:
    """The tokens of a selector; the last one is its end."""
    if len(text) > MAX_LENGTH:
        what = f"the selector has {len(text)} characters: {MAX_LENGTH} are the limit"
        raise InvalidSelector(what, selector=text[:60], position=MAX_LENGTH + 1)
    position = len(PREFIX) if text.startswith(PREFIX) else 0
    found: list[Token] = []
    while not found or found[-1].sort is not Sort.END:
        match = _TOKEN.match(text, position)
        if match is None:
            position = len(text) - len(text[position:].lstrip(" \t\f\r\n"))
            character = text[position]
            what = f"{character!r} has no meaning: texts stand in single quotes, unusual names in double quotes"
            raise invalid(text, position, _ADVICE.get(character, what))
        found.append(_token(match))
        position = match.end()
    return found


def invalid(text: str, position: int, what: str) -> InvalidSelector:
    """The error about a place in a selector."""
    near = text[max(position - 30, 0) : position + 30]
    where = f"at character {position + 1}, near {near!r}" if position < len(text) else f"at the end of {near!r}"
    return InvalidSelector(f"{what} ({where})", selector=text, position=position + 1)


def _token(match: re.Match[str]) -> Token:
    """The token of a match.

    Raises:
        InvalidSelector: it is a number out of range, a name that is too long, or one that must not be quoted.
    """
    group = match.lastgroup or ""
    position = match.start(group)
    found = match[group]
    if len(found) > MAX_NAME and group in ("name", "quoted"):
        raise invalid(match.string, position, f"the name has {len(found)} characters: {MAX_NAME} are the limit")
    match group:
        case "name":
            return _word(found, position)
        case "quoted":
            return Token(Sort.NAME, _quoted(match), position - 1)
        case "text":
            return Token(Sort.LITERAL, found.replace("''", "'"), position - 1)
        case "number":
            return Token(Sort.LITERAL, _number(match), position)
        case _:
            return Token(Sort.END if group == "end" else Sort.MARK, found, position)


def _word(name: str, position: int) -> Token:
    keyword = name.upper() if name.isascii() else ""
    if keyword in _TRUTHS:
        return Token(Sort.LITERAL, _TRUTHS[keyword], position)
    return Token(Sort.MARK, keyword, position) if keyword in _KEYWORDS else Token(Sort.NAME, name, position)


def _quoted(match: re.Match[str]) -> str:
    """A name in double quotes. One that needs none is most likely a text in the wrong quotes."""
    name = match["quoted"].replace('""', '"')
    if not name or (_NAME.fullmatch(name) and _word(name, 0).sort is Sort.NAME):
        what = "texts stand in single quotes; only a name that cannot do without stands in double quotes"
        raise invalid(match.string, match.start("quoted") - 1, what)
    return name


def _number(match: re.Match[str]) -> int | float:
    position = match.start("number")
    if match["approximate"]:
        approximate = float(match["approximate"])
        if math.isinf(approximate):
            raise invalid(match.string, position, "the number is beyond Java's double: write less than 1.8E308")
        return approximate
    digits = match["whole"].lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    if len(digits) > _MAX_DIGITS or int(digits, base) > LARGEST + 1:
        raise invalid(match.string, position, OUT_OF_RANGE)
    return int(digits, base)
