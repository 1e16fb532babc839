"""The values of headers: what they are compared as, how one calculates with them, and LIKE.

A value is a number, TRUE or FALSE, a text, or NULL (None). A text that meets a number counts as a number if it reads as
one, a text that meets TRUE or FALSE likewise; otherwise the outcome is UNKNOWN (None). A ``Text`` counts as nothing
else. Whole numbers are Java's ``long``, others its ``double``, with its rules of numeric promotion (JMS 2.0, section
3.8.1.1).

LIKE takes a time that grows with the text, not with text times pattern. A pattern is a row of pieces between ``%``
signs, each of a fixed length. The first must stand at the start, the last at the end, and each of the others is taken
where it first occurs; no later place could help what follows.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

Value = int | float | bool | str | None
"""What a header or an operand may be; None is NULL."""

Number = int | float


class Text(str):
    """A text of a message that has types: it is never equal to a number or a truth, whatever it reads as."""

    __slots__ = ()


Compare = Callable[[Any, Any], bool]
Calculate = Callable[[Number, Number], Number | None]

COMPARISONS: dict[str, Compare] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

EQUALITIES = frozenset({"=", "<>"})
"""What is no number is compared by these only."""

LARGEST = 2**63 - 1
"""The largest whole number; the smallest is ``-LARGEST - 1``."""

_NUMBER = re.compile(
    r"[+-]?(?:\d{1,40}|(?P<approximate>(?:\d+\.\d*|\.\d+)(?:e[+-]?\d+)?|\d+e[+-]?\d+))", re.ASCII | re.IGNORECASE
)
_TRUTHS = {"true": True, "false": False}


def number_in(text: str) -> Number | None:
    """Read a header's text as a number, without blanks; None if it is none or out of range."""
    if len(text) < 19 and text.isascii() and text.isdigit():
        return int(text)
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found["approximate"]:
        approximate = float(text)
        return approximate if math.isfinite(approximate) else None
    whole = int(text)
    return whole if -LARGEST - 1 <= whole <= LARGEST else None


def as_number(value: Value) -> Number | None:
    """A value as an operand of arithmetic; None if it is no number."""
    if type(value) is str:
        return number_in(value)
    return None if isinstance(value, bool | str) else value


def compare_numbers(compare: Compare, left: Value, right: Value) -> bool | None:
    """Compare what must be numbers: one side is one, or the order is asked for.

    NULL, and a text that reads as no number, give UNKNOWN; TRUE, FALSE and a ``Text`` are no numbers, which is FALSE
    (JMS 2.0, section 3.8.1.1: unlike types).
    """
    if type(left) is str:
        left = number_in(left)
    if type(right) is str:
        right = number_in(right)
    if left is None or right is None:
        return None
    if isinstance(left, bool | Text) or isinstance(right, bool | Text):
        return False
    if type(left) is not type(right):
        return compare(float(left), float(right))
    return compare(left, right)


def compare_truths(compare: Compare, left: Value, right: Value) -> bool | None:
    """Compare for equality what must be TRUE or FALSE; NULL, and a text that reads as neither, give UNKNOWN."""
    if type(left) is str:
        left = _TRUTHS.get(left.lower())
    if type(right) is str:
        right = _TRUTHS.get(right.lower())
    if left is None or right is None:
        return None
    return type(left) is type(right) is bool and compare(left, right)


def compare_texts(compare: Compare, left: Value, right: Value) -> bool | None:
    """Compare with a text of the selector, for equality; NULL gives UNKNOWN, what is no text FALSE (unlike types)."""
    if left is None or right is None:
        return None
    return isinstance(left, str) and isinstance(right, str) and compare(left, right)


def compare_headers(compare: Compare, left: Value, right: Value) -> bool | None:
    """Compare two headers for equality: as texts if both are, else as what the other one is."""
    if isinstance(left, str) and isinstance(right, str):
        return compare(left, right)
    if type(left) is bool or type(right) is bool:
        return compare_truths(compare, left, right)
    return compare_numbers(compare, left, right)


def _long(whole: int) -> int:
    """What is left of a whole number in Java's 64 bits."""
    return (whole + LARGEST + 1) % 2**64 - LARGEST - 1


def _promoted(calculate: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    """An operator of Python as Java's: whole numbers stay within 64 bits."""

    def calculated(left: Number, right: Number) -> Number:
        result = calculate(left, right)
        return _long(result) if type(result) is int else result

    return calculated


def _divide(left: Number, right: Number) -> Number | None:
    """Whole numbers give a whole number, cut towards zero; nothing can be divided by zero, so that is UNKNOWN."""
    if not right:
        return None
    if type(left) is int and type(right) is int:
        quotient = abs(left) // abs(right)
        return _long(quotient if (left < 0) == (right < 0) else -quotient)
    return left / right


ARITHMETIC: dict[str, Calculate] = {
    "+": _promoted(operator.add), "-": _promoted(operator.sub), "*": _promoted(operator.mul), "/": _divide,
}  # fmt: skip
"""The operators; None is UNKNOWN."""


MAX_PATTERN = 500
"""The longest pattern, in characters."""

QUICK = 50_000
"""Up to this product of the lengths of a text and of a piece with ``_``, each place of the text is tried."""

_MOST_MARKS = 1 << 25  # how many bits are remembered of one text


class LikePattern:
    """A pattern; the escape takes the meaning from the character after it. ``ValueError`` if it is wrong."""

    __slots__ = ("_first", "_is_whole", "_last", "_least", "_others", "_written")

    def __init__(self, pattern: str, escape: str | None) -> None:
        if len(pattern) > MAX_PATTERN:
            raise ValueError(f"the pattern has {len(pattern)} characters: {MAX_PATTERN} are the limit")
        self._written = pattern, escape
        pieces = [_Piece(characters) for characters in _pieces(pattern, escape)]
        self._first, *rest = pieces
        self._is_whole = not rest
        self._last = rest.pop() if rest else _Piece([])
        self._others = [piece for piece in rest if piece.length]
        self._least = sum([piece.length for piece in pieces])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LikePattern) and self._written == other._written

    def __hash__(self) -> int:
        return hash(self._written)

    def matches(self, text: str) -> bool:
        """Whether the whole text has this form."""
        size = len(text)
        if size < self._least or (self._is_whole and size != self._least) or not self._first.is_at(text, 0):
            return False
        start, end = self._first.length, size - self._last.length
        if not self._last.is_at(text, end):
            return False
        for piece in self._others:
            at = piece.find(text, start, end)
            if at < 0:
                return False
            start = at + piece.length
        return True


class _Piece:
    """What stands between two ``%`` signs; a ``_`` is None."""

    __slots__ = ("_characters", "_form", "_literal", "length")

    def __init__(self, characters: Sequence[str | None]) -> None:
        self.length = len(characters)
        self._characters = [(at, character) for at, character in enumerate(characters) if character is not None]
        text = "".join([character for _, character in self._characters])
        self._literal = text if len(text) == self.length else None
        self._form = re.compile("".join(["." if each is None else re.escape(each) for each in characters]), re.DOTALL)

    def is_at(self, text: str, at: int) -> bool:
        """Whether it stands at a place of a text that has room for it."""
        return self._form.match(text, at) is not None if self._literal is None else text.startswith(self._literal, at)

    def find(self, text: str, start: int, end: int) -> int:
        """Where it first occurs in a part of a text; -1 if it does not."""
        if self._literal is not None:
            return text.find(self._literal, start, end)
        if (end - start) * self.length <= QUICK:
            found = self._form.search(text, start, end)
            return -1 if found is None else found.start()
        marks = _marks_of(text)
        # A bit for each place: all are tried at once, one character of the piece after the other.
        places = (1 << max(end - start - self.length + 1, 0)) - 1 << start
        for at, character in self._characters:
            if character not in marks:
                _mark(text, character, marks)
            places &= marks[character] >> at
            if not places:
                return -1
        return (places & -places).bit_length() - 1


@lru_cache(1)
def _marks_of(text: str) -> dict[str, int]:
    """Where some characters are in the text that was asked for last: other selectors may ask for the same."""
    return {}


def _mark(text: str, character: str, marks: dict[str, int]) -> None:
    """Note where a character is in a text, a bit for each place."""
    if len(marks) * len(text) > _MOST_MARKS:
        marks.clear()
    marks[character] = int("0" + "1".join(["0" * len(part) for part in text[::-1].split(character)]), 2)


def _pieces(pattern: str, escape: str | None) -> list[list[str | None]]:
    """The pieces between the ``%`` signs."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise ValueError("nothing follows the escape character at the end of the pattern: write it twice")
            pieces[-1].append(following)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return pieces
