"""Patterns: names with wildcards, as ActiveMQ writes them."""

import re
from dataclasses import dataclass, field

from quire.destination import is_plain
from quire.errors import InvalidDestination

_LITERAL, _ONE_PART, _THE_REST = range(3)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A name in which ``*`` stands for one part, and ``>`` at the end for any number of parts, none included.

    ``orders.*`` matches ``orders.new``, but neither ``orders`` nor ``orders.new.eu``; ``orders.>`` matches all three,
    and ``>`` matches everything. ``>`` may be written several times at the end, and means the same. Inside a part,
    ``*`` and ``>`` are characters like others. (The rules of ActiveMQ's destination filters.)

    Attributes:
        specificity: sorts patterns, the most specific one first: part by part from the left, a literal part before
            ``*`` before ``>``; of two that are alike so far, the one that ends first; at last the text. So the order is
            total, and of two different patterns that match the same name, one comes first by its wildcards alone.
    """

    text: str  # the pattern, with one ``>`` at the end at most; one without wildcards matches that one name
    is_wildcard: bool = field(init=False, compare=False, repr=False)  # whether it has wildcards
    specificity: tuple[tuple[int, ...], str] = field(init=False, compare=False, repr=False)
    _expression: re.Pattern[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parts = self.text.split(".")
        while parts[-2:] == [">", ">"]:
            parts.pop()
        if not is_plain(self.text) or ">" in parts[:-1]:
            raise InvalidDestination(
                f"{self.text[:60]!r} is not a pattern: a name in which a part may be `*`, and the last one `>`",
                name=self.text[:60],
            )
        ranks = tuple({"*": _ONE_PART, ">": _THE_REST}.get(part, _LITERAL) for part in parts)
        object.__setattr__(self, "text", ".".join(parts))
        object.__setattr__(self, "is_wildcard", any(ranks))
        object.__setattr__(self, "specificity", (ranks, self.text))
        object.__setattr__(self, "_expression", _compiled(parts))

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None


def _compiled(parts: list[str]) -> re.Pattern[str]:
    fixed = parts[:-1] if parts[-1] == ">" else parts
    expression = r"\.".join("[^.]*" if part == "*" else re.escape(part) for part in fixed)
    if fixed is not parts:
        expression += r"(\..*)?" if fixed else ".*"
    return re.compile(expression, re.DOTALL)
