"""LIKE: whether a text has the form of a pattern, in a time that grows with the text, not with text times pattern.

A pattern is a row of pieces between ``%`` signs, each of a fixed length. The first must stand at the start, the last at
the end, and each of the others is taken where it first occurs; no later place could help what follows.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

MAX_PATTERN = 500
"""The longest pattern, in characters."""

QUICK = 50_000
"""Up to this product of the lengths of a text and of a piece with ``_``, each place of the text is tried."""

_MOST_MARKS = 1 << 25  # how many bits are remembered of one text


class LikePattern:
    """A pattern.

    Args:
        escape: takes the meaning from the character after it; None for no such character.

    Raises:
        ValueError: the pattern is too long, or nothing follows its last escape.
    """

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
