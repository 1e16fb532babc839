"""The values of headers: what they are compared as, and how one calculates with them.

A value is a number, TRUE or FALSE, a text, or NULL (None). A text that meets a number counts as a number if it reads as
one, a text that meets TRUE or FALSE likewise; otherwise the outcome is UNKNOWN (None). A ``Text`` counts as nothing
else. Whole numbers are Java's ``long``, others its ``double``, with its rules of numeric promotion (JMS 2.0, section
3.8.1.1).
"""

import math
import operator
import re
from collections.abc import Callable
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
    """Read a header's text as a number.

    Args:
        text: decimal digits, with a sign, a point or an exponent if need be, and nothing else, no blanks either.

    Returns:
        An int if there is neither point nor exponent, else a float; None if it is no number or is out of range.
    """
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

    Returns:
        None if a side is NULL or a text that reads as no number; FALSE if a side is TRUE, FALSE or a ``Text``, which is
        no number (JMS 2.0, section 3.8.1.1: unlike types).
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
    """Compare what must be TRUE or FALSE, for equality.

    Returns:
        None if a side is NULL or a text that reads as neither; FALSE if a side is a number (unlike types).
    """
    if type(left) is str:
        left = _TRUTHS.get(left.lower())
    if type(right) is str:
        right = _TRUTHS.get(right.lower())
    if left is None or right is None:
        return None
    return type(left) is type(right) is bool and compare(left, right)


def compare_texts(compare: Compare, left: Value, right: Value) -> bool | None:
    """Compare with a text of the selector, for equality.

    Returns:
        None if a side is NULL; FALSE if a side is no text (unlike types).
    """
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
