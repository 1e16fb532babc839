"""What a parsed selector is: a tree of conditions over headers and literals.

Conditions are TRUE, FALSE or UNKNOWN. The parser writes the rest of the language in these terms: NOT LIKE is ``Not`` of
``Like``, BETWEEN is two comparisons, a sign is a sum with 0 (JMS 2.0, section 3.8.1.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum

from quire.selectors.like import LikePattern


class Kind(Enum):
    """What is known of an expression before there is a message. A header may be of any kind."""

    NUMBER = "a number"
    TEXT = "a text"
    CONDITION = "a condition"
    HEADER = "a header"


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text, TRUE or FALSE as the selector has it."""

    value: int | float | bool | str


@dataclass(frozen=True, slots=True)
class Header:
    """The value of a header; alone as a condition it means ``name = TRUE``."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operands of the same precedence, worked on from left to right.

    Attributes:
        first: the first operand.
        steps: the operator (``+ - * /``) and the operand of each step; at least one.
    """

    first: "Expression"
    steps: tuple[tuple[str, "Expression"], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and one of ``= <> < <= > >=`` between them."""

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
    """The message has no such header."""

    header: Header


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    condition: "Expression"


@dataclass(frozen=True, slots=True)
class All:
    """Conditions with AND between them."""

    conditions: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Conditions with OR between them."""

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
