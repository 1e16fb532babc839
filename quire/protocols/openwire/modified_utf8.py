"""Java's modified UTF-8: NUL is two octets, and what needs two UTF-16 units is two times three octets."""

import re

from quire.errors import ProtocolViolation

_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(text: str) -> bytes:
    """Text as Java writes it."""
    if not text.isascii():
        text = _BEYOND_16_BITS.sub(_surrogates, text)
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def decode(data: bytes) -> str:
    """Text that Java wrote. A lone surrogate, which Java allows but means nothing, becomes U+FFFD.

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
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _surrogates(match: re.Match[str]) -> str:
    high, low = divmod(ord(match[0]) - 0x10000, 0x400)
    return chr(0xD800 + high) + chr(0xDC00 + low)
