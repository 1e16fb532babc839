"""From a selector's text to its tokens, and from those to its tree (JMS 2.0, section 3.8.1.1).

The parser has a method per level of precedence, from OR down to signs. What can be known to be wrong before there is a
message is refused here: a condition that could never be TRUE would keep its consumer waiting without a word.

The tree has conditions over headers and literals, which are TRUE, FALSE or UNKNOWN. The parser writes the rest of the
language in these terms: NOT LIKE is ``Not`` of ``Like``, BETWEEN is two comparisons, a sign is a sum with 0.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, auto
from typing import NamedTuple

from quire.errors import InvalidSelector
from quire.selectors.values import COMPARISONS, EQUALITIES, LARGEST, LikePattern

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
    NAME = auto()
    LITERAL = auto()
    MARK = auto()
    END = auto()


class Token(NamedTuple):
    """A word of a selector.

    Attributes:
        value: the name of a header, the value of a literal, a symbol, or a keyword in capitals. A whole number may be
            one above ``LARGEST``: a minus may stand before it.
    """

    sort: Sort  # what it is
    value: int | float | bool | str
    position: int  # where it begins, from 0


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


class Kind(Enum):
    """What is known of an expression before there is a message. A header may be of any kind."""

    NUMBER = "a number"
    TEXT = "a text"
    CONDITION = "a condition"
    HEADER = "a header"


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float | bool | str


@dataclass(frozen=True, slots=True)
class Header:
    """The value of a header; alone as a condition it means ``name = TRUE``."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operands of the same precedence, worked on from left to right."""

    first: "Expression"  # the first operand
    steps: tuple[tuple[str, "Expression"], ...]  # the operator (``+ - * /``) and the operand of each step; at least one


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class In:
    """A header's text is one of these."""

    header: Header
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Like:
    """A header's text has this form, all of it."""

    header: Header
    form: LikePattern


@dataclass(frozen=True, slots=True)
class IsNull:
    header: Header


@dataclass(frozen=True, slots=True)
class Not:
    condition: "Expression"


@dataclass(frozen=True, slots=True)
class All:
    conditions: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Any:
    conditions: tuple["Expression", ...]


Expression = Literal | Header | Arithmetic | Comparison | In | Like | IsNull | Not | All | Any
"""Whatever brackets may hold."""


def kind_of(expression: Expression) -> Kind:
    """What an expression is, as far as that is known before there is a message."""
    match expression:
        case Header():
            return Kind.HEADER
        case Literal(value) if isinstance(value, str):
            return Kind.TEXT
        case Literal(value) if not isinstance(value, bool):
            return Kind.NUMBER
        case Arithmetic():
            return Kind.NUMBER
        case _:
            return Kind.CONDITION


def headers_in(part: object) -> Iterator[str]:
    """The names of the headers that a tree asks for; some may come twice."""
    if isinstance(part, Header):
        yield part.name
    elif isinstance(part, tuple):
        for each in part:
            yield from headers_in(each)
    elif is_dataclass(part):
        for field in fields(part):
            yield from headers_in(getattr(part, field.name))


MAX_NESTING = 50
"""How deep brackets may stand in brackets."""

MAX_PATTERNS = 1000
"""How many characters all LIKE patterns may have together: each may cost a look at every character of a header."""


def parse(text: str) -> Expression:
    """Read a selector; an empty one is TRUE for every message (JMS 2.0, section 3.8.1.1)."""
    return _Parser(text).selector()


class _Parser:
    """Reads one selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = iter(tokens(text))
        self._token = next(self._tokens)
        self._nesting = 0
        self._patterns = 0

    def selector(self) -> Expression:
        whole = Literal(True) if self._at_end() else self._condition(self._alternatives)
        if not self._at_end():
            raise self._unexpected("an operator, AND, OR or the end of the selector")
        return whole

    # The levels of precedence, from the loosest to the tightest.

    def _alternatives(self) -> Expression:
        return self._joined("OR", Any, self._requirements)

    def _requirements(self) -> Expression:
        return self._joined("AND", All, self._opposite)

    def _joined(
        self, keyword: str, join: Callable[[tuple[Expression, ...]], Expression], part: Callable[[], Expression]
    ) -> Expression:
        start = self._token
        first = part()
        if not self._is(keyword):
            return first
        parts = [self._as_condition(first, start)]
        while self._take(keyword):
            parts.append(self._condition(part))
        return join(tuple(parts))

    def _opposite(self) -> Expression:
        if not self._is("NOT"):
            return self._comparison()
        opposite = False
        while self._take("NOT"):
            opposite = not opposite
        condition = self._condition(self._comparison)
        return Not(condition) if opposite else condition

    def _comparison(self) -> Expression:
        start = self._token
        left = self._sum()
        if self._is(*COMPARISONS):
            return self._compared(left)
        if self._take("IS"):
            opposite = self._take("NOT")
            self._expect("NULL")
            test: Expression = IsNull(self._as_header(left, start, "IS"))
        else:
            opposite = self._take("NOT")
            if self._take("BETWEEN"):
                return self._between(self._as_number(left, start), opposite)
            if self._take("IN"):
                test = self._in(self._as_header(left, start, "IN"))
            elif self._take("LIKE"):
                test = self._like(self._as_header(left, start, "LIKE"))
            elif opposite:
                raise self._unexpected("BETWEEN, IN or LIKE")
            else:
                return left
        return Not(test) if opposite else test

    def _sum(self) -> Expression:
        return self._calculated(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._calculated(("*", "/"), self._signed)

    def _calculated(self, operators: tuple[str, str], part: Callable[[], Expression]) -> Expression:
        start = self._token
        first = part()
        if not self._is(*operators):
            return first
        first = self._as_number(first, start)
        steps = []
        while self._is(*operators):
            steps.append((str(self._next().value), self._number(part)))
        return Arithmetic(first, tuple(steps))

    def _signed(self) -> Expression:
        if not self._is("+", "-"):
            return self._primary()
        negative = False
        while self._is("+", "-"):
            negative ^= self._next().value == "-"
        token = self._token
        if token.sort is Sort.LITERAL and not isinstance(token.value, bool | str):
            self._next()
            return self._literal(-token.value if negative else token.value, token)
        return Arithmetic(Literal(0), (("-" if negative else "+", self._number(self._primary)),))

    def _primary(self) -> Expression:
        token = self._token
        if token.sort is Sort.NAME:
            return Header(str(self._next().value))
        if token.sort is Sort.LITERAL:
            return self._literal(self._next().value, token)
        if not self._take("("):
            raise self._unexpected("a header, a number, a text, TRUE, FALSE or a bracket")
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._invalid(token, f"brackets are nested deeper than {MAX_NESTING}: leave out those of AND and OR")
        inner = self._alternatives()
        self._expect(")")
        self._nesting -= 1
        return inner

    # What stands behind a first operand.

    def _compared(self, left: Expression) -> Comparison:
        operator = self._next()
        right = self._sum()
        kinds = {kind_of(left), kind_of(right)} - {Kind.HEADER}
        if len(kinds) > 1:
            what = f"{kind_of(left).value} and {kind_of(right).value} are never equal: compare what is of one kind"
            raise self._invalid(operator, what)
        if kinds - {Kind.NUMBER} and operator.value not in EQUALITIES:
            raise self._invalid(operator, "only numbers have an order: compare others with = and <>")
        return Comparison(str(operator.value), left, right)

    def _between(self, value: Expression, opposite: bool) -> Expression:
        low = self._number(self._sum)
        self._expect("AND")
        high = self._number(self._sum)
        if opposite:
            return Any((Comparison("<", value, low), Comparison(">", value, high)))
        return All((Comparison(">=", value, low), Comparison("<=", value, high)))

    def _in(self, header: Header) -> In:
        self._expect("(")
        texts = {self._text_literal()}
        while self._take(","):
            texts.add(self._text_literal())
        self._expect(")")
        return In(header, frozenset(texts))

    def _like(self, header: Header) -> Like:
        start = self._token
        pattern = self._text_literal()
        escape = None
        if self._take("ESCAPE"):
            token = self._token
            escape = self._text_literal()
            if len(escape) != 1:
                raise self._invalid(token, "ESCAPE takes one character")
        self._patterns += len(pattern)
        if self._patterns > MAX_PATTERNS:
            raise self._invalid(start, f"all patterns of a selector together may have {MAX_PATTERNS} characters")
        try:
            return Like(header, LikePattern(pattern, escape))
        except ValueError as error:
            raise self._invalid(start, str(error)) from None

    def _text_literal(self) -> str:
        token = self._token
        if token.sort is not Sort.LITERAL or not isinstance(token.value, str):
            raise self._unexpected("a text in single quotes")
        self._next()
        return token.value

    def _literal(self, value: int | float | bool | str, token: Token) -> Literal:
        if isinstance(value, int) and value > LARGEST:
            raise self._invalid(token, OUT_OF_RANGE)
        return Literal(value)

    # Of which kind an expression must be.

    def _condition(self, part: Callable[[], Expression]) -> Expression:
        start = self._token
        return self._as_condition(part(), start)

    def _as_condition(self, expression: Expression, start: Token) -> Expression:
        if kind_of(expression) in (Kind.NUMBER, Kind.TEXT):
            raise self._invalid(start, f"this is {kind_of(expression).value} and not a condition: compare it")
        return expression

    def _number(self, part: Callable[[], Expression]) -> Expression:
        start = self._token
        return self._as_number(part(), start)

    def _as_number(self, expression: Expression, start: Token) -> Expression:
        if kind_of(expression) in (Kind.CONDITION, Kind.TEXT):
            raise self._invalid(start, f"a number or a header is needed here, and this is {kind_of(expression).value}")
        return expression

    def _as_header(self, expression: Expression, start: Token, keyword: str) -> Header:
        if not isinstance(expression, Header):
            raise self._invalid(start, f"{keyword} needs the name of a header before it")
        return expression

    # Tokens.

    def _is(self, *marks: str) -> bool:
        return self._token.sort is Sort.MARK and self._token.value in marks

    def _at_end(self) -> bool:
        return self._token.sort is Sort.END

    def _next(self) -> Token:
        token, self._token = self._token, next(self._tokens)
        return token

    def _take(self, mark: str) -> bool:
        found = self._is(mark)
        if found:
            self._next()
        return found

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._unexpected(mark)

    def _unexpected(self, wanted: str) -> InvalidSelector:
        if self._is("NULL"):
            return self._invalid(self._token, "NULL stands only in IS NULL and IS NOT NULL")
        return self._invalid(self._token, f"{wanted} is missing")

    def _invalid(self, token: Token, what: str) -> InvalidSelector:
        return invalid(self._text, token.position, what)
