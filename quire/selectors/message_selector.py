"""The selector: what a consumer wants, asked of one message after the other."""

from collections.abc import Iterable
from functools import lru_cache, partial

from quire.message import Message
from quire.selectors.compiler import Compiler
from quire.selectors.lexer import PREFIX
from quire.selectors.message_headers import message_header
from quire.selectors.parser import parse

CACHED = 100
"""How many selectors are kept for the next who asks for the same."""

CACHED_LENGTH = 500
"""Up to how many characters a selector is kept: one takes up to 200 times its length in memory."""

WORK = 20_000
"""How many characters of selectors with LIKE are asked about messages in one step: one may cost a look at a header."""


class Selector:
    """A selector, ready to be asked.

    Attributes:
        text: as given.
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
