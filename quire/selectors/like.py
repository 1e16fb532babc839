"""LIKE: a pattern as a regular expression that never goes back on what it has matched.

A pattern is a row of pieces between ``%`` signs, each of a fixed length. The first must stand at the start, the last at
the end, and each of the others is taken where it first occurs; no later place could help what follows. So each is
found by a lookahead, which `re` never enters again, and what it found is passed over by a reference. The effort is at
most the length of the text times that of the pattern.
"""

import re

MAX_PATTERN = 500
"""The longest pattern, in characters."""


def like_expression(pattern: str, escape: str | None) -> re.Pattern[str]:
    """Compile a pattern.

    Args:
        escape: takes the meaning from the character after it; None for no such character.

    Returns:
        What must match the whole text.

    Raises:
        ValueError: the pattern is too long, or nothing follows its last escape.
    """
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern)} characters: {MAX_PATTERN} are the limit")
    first, *others = _pieces(pattern, escape)
    if not others:
        return re.compile(first, re.DOTALL)
    between = [piece for piece in others[:-1] if piece]
    middle = "".join(f"(?=(?P<p{number}>.*?{piece}))(?P=p{number})" for number, piece in enumerate(between))
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


def _pieces(pattern: str, escape: str | None) -> list[str]:
    """The pieces between the ``%`` signs, as regular expressions."""
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise ValueError("nothing follows the escape character at the end of the pattern: write it twice")
            pieces[-1] += re.escape(following)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    return pieces
