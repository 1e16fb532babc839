"""From a selector's tokens to its tree (JMS 2.0, section 3.8.1.1).

A method per level of precedence, from OR down to signs. What can be known to be wrong before there is a message is
refused here: a condition that could never be TRUE would keep its consumer waiting without a word.
"""

from collections.abc import Callable

from quire.errors import InvalidSelector
from quire.selectors.lexer import OUT_OF_RANGE, Sort, Token, invalid, tokens
from quire.selectors.like import LikePattern
from quire.selectors.tree import (
    All,
    Any,
    Arithmetic,
    Comparison,
    Expression,
    Header,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Not,
    kind_of,
)
from quire.selectors.values import COMPARISONS, EQUALITIES, LARGEST

MAX_NESTING = 50
"""How deep brackets may stand in brackets."""

MAX_PATTERNS = 1000
"""How many characters all LIKE patterns may have together: each may cost a look at every character of a header."""


def parse(text: str) -> Expression:
    """Read a selector.

    Args:
        text: the selector; an empty one is TRUE for every message (JMS 2.0, section 3.8.1.1).

    Raises:
        InvalidSelector: it is none; ``data`` has the ``selector`` and the ``position``, from 1.
    """
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
        """All of it."""
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
