"""From a selector's tree to closures: what is decided once is not decided again for each message.

A closure takes a *subject*, whatever its headers are read from, and returns a value, or for a condition TRUE, FALSE or
UNKNOWN (True, False, None), after the tables of JMS 2.0, section 3.8.1.2.
"""

import operator
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

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
from quire.selectors.values import (
    ARITHMETIC,
    COMPARISONS,
    EQUALITIES,
    Calculate,
    Number,
    Value,
    as_number,
    compare_headers,
    compare_numbers,
    compare_texts,
    compare_truths,
)

Subject = TypeVar("Subject")
Operand = Callable[[Subject], Value]
Condition = Callable[[Subject], bool | None]


class Compiler(Generic[Subject]):
    """Makes closures over one kind of subject."""

    def __init__(self, reader: Callable[[str], Operand[Subject]]) -> None:
        self._reader = cache(reader)

    def condition(self, expression: Expression) -> Condition[Subject]:
        """The closure of a condition; a header alone means that it is TRUE."""
        match expression:
            case Comparison():
                return self._comparison(expression)
            case Not(condition):
                return _not(self.condition(condition))
            case All(conditions):
                return _all([self.condition(condition) for condition in conditions])
            case Any(conditions):
                return _any([self.condition(condition) for condition in conditions])
            case Literal(value):
                return lambda subject: bool(value)
            case Arithmetic():
                raise TypeError("a number is no condition: the parser lets none through")
            case _:
                return self._about_header(expression)

    def _about_header(self, expression: Header | In | Like | IsNull) -> Condition[Subject]:
        match expression:
            case Header(name):
                read = self._reader(name)
                return lambda subject: compare_truths(operator.eq, read(subject), True)
            case IsNull(Header(name)):
                read = self._reader(name)
                return lambda subject: read(subject) is None
            case In(Header(name), texts):
                return _in(self._reader(name), texts)
            case Like(Header(name), form):
                return _like(self._reader(name), form)

    def _operand(self, expression: Expression) -> Operand[Subject]:
        match expression:
            case Header(name):
                return self._reader(name)
            case Literal(value):
                return lambda subject: value
            case Arithmetic(first, steps):
                return _calculation(
                    self._operand(first), [(ARITHMETIC[sign], self._operand(operand)) for sign, operand in steps]
                )
            case condition:
                return self.condition(condition)

    def _comparison(self, comparison: Comparison) -> Condition[Subject]:
        """What two operands are compared as, by what is known of them before there is a message."""
        compare = COMPARISONS[comparison.operator]
        left, right = self._operand(comparison.left), self._operand(comparison.right)
        kinds = {kind_of(comparison.left), kind_of(comparison.right)}
        if Kind.TEXT in kinds:
            compared = compare_texts
        elif Kind.CONDITION in kinds:
            compared = compare_truths
        elif Kind.NUMBER in kinds or comparison.operator not in EQUALITIES:
            compared = compare_numbers
        else:
            compared = compare_headers
        return lambda subject: compared(compare, left(subject), right(subject))


def _calculation(
    first: Operand[Subject], steps: list[tuple[Calculate, Operand[Subject]]]
) -> Callable[[Subject], Number | None]:
    def calculation(subject: Subject) -> Number | None:
        result = as_number(first(subject))
        for calculate, operand in steps:
            other = as_number(operand(subject))
            if result is None or other is None:
                return None
            result = calculate(result, other)
        return result

    return calculation


def _in(read: Operand[Subject], texts: frozenset[str]) -> Condition[Subject]:
    def is_in(subject: Subject) -> bool | None:
        value = read(subject)
        return None if value is None else value in texts

    return is_in


def _like(read: Operand[Subject], form: LikePattern) -> Condition[Subject]:
    matches = form.matches

    def is_like(subject: Subject) -> bool | None:
        value = read(subject)
        return None if value is None else isinstance(value, str) and matches(value)

    return is_like


def _not(condition: Condition[Subject]) -> Condition[Subject]:
    def opposite(subject: Subject) -> bool | None:
        truth = condition(subject)
        return None if truth is None else not truth

    return opposite


def _all(conditions: list[Condition[Subject]]) -> Condition[Subject]:
    def all_of(subject: Subject) -> bool | None:
        outcome: bool | None = True
        for condition in conditions:
            truth = condition(subject)
            if truth is False:
                return False
            if truth is None:
                outcome = None
        return outcome

    return all_of


def _any(conditions: list[Condition[Subject]]) -> Condition[Subject]:
    def any_of(subject: Subject) -> bool | None:
        outcome: bool | None = False
        for condition in conditions:
            truth = condition(subject)
            if truth is True:
                return True
            if truth is None:
                outcome = None
        return outcome

    return any_of
