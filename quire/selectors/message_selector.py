"""The selector: what a consumer wants, asked of one message after the other.

It is compiled from its tree to closures: what is decided once is not decided again for each message. A closure takes a
*subject*, whatever its headers are read from, and returns a value, or for a condition TRUE, FALSE or UNKNOWN (True,
False, None), after the tables of JMS 2.0, section 3.8.1.2.

A header is looked for in the message's content, from its start to the empty line: no other header is parsed, and the
body is never looked at. A message of a JMS client has types: they are looked up once the header is found. In all others
a text counts as what it is compared with.
"""

import operator
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from typing import Generic, TypeVar

from quire.message import PROPERTY_TYPES, Message, escape, property_types, unescape
from quire.selectors.parser import (
    PREFIX,
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
    parse,
)
from quire.selectors.values import (
    ARITHMETIC,
    COMPARISONS,
    EQUALITIES,
    Calculate,
    LikePattern,
    Number,
    Text,
    Value,
    as_number,
    compare_headers,
    compare_numbers,
    compare_texts,
    compare_truths,
    number_in,
)

Subject = TypeVar("Subject")
Operand = Callable[[Subject], Value]
Condition = Callable[[Subject], bool | None]


class Compiler(Generic[Subject]):
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
                return _joined([self.condition(condition) for condition in conditions], decisive=False)
            case Any(conditions):
                return _joined([self.condition(condition) for condition in conditions], decisive=True)
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


def _joined(conditions: list[Condition[Subject]], decisive: bool) -> Condition[Subject]:
    """AND, which FALSE decides, or OR, which TRUE decides."""

    def joined(subject: Subject) -> bool | None:
        outcome: bool | None = not decisive
        for condition in conditions:
            truth = condition(subject)
            if truth is decisive:
                return truth
            if truth is None:
                outcome = None
        return outcome

    return joined


_OF_THE_RECORD: dict[str, Callable[[Message], Value]] = {
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.sent_persistent else "NON_PERSISTENT",
    "JMSExpiration": lambda message: message.expiration,
    "JMSPriority": lambda message: message.priority,
    "JMSRedelivered": lambda message: message.redelivered,
}
_OF_THE_CONTENT = {
    "JMSCorrelationID": "correlation-id",
    "JMSMessageID": "message-id",
    "JMSReplyTo": "reply-to",
    "JMSTimestamp": "timestamp",
    "JMSType": "type",
}
_WHOLE_NUMBERS = {"JMSTimestamp", "JMSXGroupSeq"}
_TYPES_LINE = b"\n" + PROPERTY_TYPES + b":"

_is_of_jms = re.compile(rb"message-id:.*\\c-?\d+\\c-?\d+\\c-?\d+\n").match
"""Whether an OpenWire client made the id in a content: a session, a producer and a number are at its end."""


def _double(text: str) -> float | None:
    try:
        return float(text)  # it may be infinite, or no number
    except ValueError:
        return None


_READERS: dict[bytes, Callable[[str], Value]] = {
    b"boolean": lambda text: text == "true",
    **dict.fromkeys((b"byte", b"short", b"int", b"long"), number_in),
    **dict.fromkeys((b"float", b"double"), _double),
}


def message_header(name: str, *, converts: bool = False) -> Callable[[Message], Value]:
    """How to read a header of any message.

    Args:
        name: as a selector has it: a header field of JMS, or the name of a STOMP header.
        converts: whether a text counts as what it is compared with, in messages that have types too.

    Returns:
        A function from a message to the value; None if the message has no such header. A property whose line was
        changed since, so that it does not read as its type, is a text.
    """
    if (of_the_record := _OF_THE_RECORD.get(name)) is not None:
        return of_the_record
    # A name that is no UTF-8 (a lone surrogate) can be written in a selector, but is in no message.
    key = _OF_THE_CONTENT.get(name, name).encode("utf-8", "surrogatepass")
    line = (b"" if key == b"message-id" else b"\n") + escape(key) + b":"  # that one is the first
    size, is_number = len(line), name in _WHOLE_NUMBERS
    property = b"" if name in _OF_THE_CONTENT else key

    def read(message: Message) -> Value:
        content = message.content
        head = content.index(b"\n\n")
        if (start := content.find(line, 0, head)) < 0:
            return None
        start += size
        found = content[start : content.index(b"\n", start)]
        text = (unescape(found) if b"\\" in found else found).decode("utf-8", "replace")
        types = content.find(_TYPES_LINE, 0, head)
        if types >= 0:
            types += len(_TYPES_LINE)
            kinds = property_types(unescape(content[types : content.index(b"\n", types)]))
            if (typed := _READERS.get(kinds.get(property, b"string"))) and (value := typed(text)) is not None:
                return value
        elif not _is_of_jms(content):
            return text
        if is_number:
            return number_in(text)
        return text if converts else Text(text)

    return read


CACHED = 100
"""How many selectors are kept for the next who asks for the same."""

CACHED_LENGTH = 500
"""Up to how many characters a selector is kept: one takes up to 200 times its length in memory."""

WORK = 20_000
"""How many characters of selectors with LIKE are asked about messages in one step: one may cost a look at a header."""


class Selector:
    """A selector, ready to be asked.

    Attributes:
        effort: its length if it has LIKE, which may take long; else 0.

    Raises:
        InvalidSelector: it cannot be read; ``data`` has the ``selector`` and the ``position``, from 1.
    """

    __slots__ = ("_of_message", "effort", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.effort = len(text) if "LIKE" in text.upper() else 0
        reader = partial(message_header, converts=text.startswith(PREFIX))
        self._of_message = Compiler(reader).condition(parse(text))

    def matches(self, message: Message) -> bool:
        """Whether the selector is TRUE for a message; FALSE and UNKNOWN do not match."""
        return self._of_message(message) is True

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def selector(text: str) -> Selector:
    """The selector of a text. The last ``CACHED`` of them are at hand."""
    return _cached(text) if len(text) <= CACHED_LENGTH else Selector(text)


def at_most(count: int, selectors: Iterable[Selector | None]) -> int:
    """About how many messages, ``count`` at most, one step may ask these selectors."""
    effort = sum([selector.effort for selector in selectors if selector is not None])
    return max(1, min(count, WORK // effort)) if effort else count


_cached = lru_cache(CACHED)(Selector)
