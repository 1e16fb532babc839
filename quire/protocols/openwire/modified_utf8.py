"""Java's modified UTF-8: NUL is two octets, and what needs two UTF-16 units is two times three octets.

Half of such a pair may stand alone in a text of Java. UTF-8 has no octets for it: there U+FFFD stands in its place.
"""

import re

from quire.errors import ProtocolViolation

_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACED = re.compile("[\ud800-\udfff\ufffd]")
_REPLACEMENT = "\ufffd"


def encode(text: str) -> bytes:
    """Text as Java writes it."""
    if not text.isascii():
        text = _BEYOND_16_BITS.sub(_surrogates, text)
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def decode(data: bytes, *, keeps_halves: bool = False) -> str:
    """Text that Java wrote.

    Args:
        keeps_halves: whether half a pair stays what it is; else it becomes U+FFFD.

    Raises:
        ProtocolViolation: the octets are not text.
    """
    if data.isascii():
        return data.decode("ascii")
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ProtocolViolation(f"a string is not in modified UTF-8: {error.reason} at octet {error.start}") from error
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return text if keeps_halves else readable(text)
    return text


def readable(text: str) -> str:
    """A text with U+FFFD for each half of a pair: what UTF-8 can have."""
    return _SURROGATE.sub(_REPLACEMENT, text)


def halves(text: str) -> str:
    """What each U+FFFD of a readable text stands for, four hexadecimal digits each; empty if there is no half."""
    if not _SURROGATE.search(text):
        return ""
    return "".join([f"{ord(character):04x}" for character in _REPLACED.findall(text)])


def with_halves(text: str, units: str) -> str:
    """A readable text as it was, out of what ``halves`` said. One that was changed since stays as it is."""
    parts = text.split(_REPLACEMENT)
    try:
        characters = [chr(int(units[at : at + 4], 16)) for at in range(0, len(units), 4)]
    except ValueError:
        return text
    if len(characters) != len(parts) - 1:
        return text
    return "".join([part + character for part, character in zip(parts, [*characters, ""], strict=True)])


def _surrogates(match: re.Match[str]) -> str:
    high, low = divmod(ord(match[0]) - 0x10000, 0x400)
    return chr(0xD800 + high) + chr(0xDC00 + low)
