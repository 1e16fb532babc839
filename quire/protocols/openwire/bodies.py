"""The bodies of messages: text, and what was compressed."""

import zlib
from struct import Struct

from quire.errors import LimitExceeded, ProtocolViolation
from quire.protocols.openwire.messages import ActiveMQBytesMessage, Message
from quire.protocols.openwire.modified_utf8 import decode, encode

_SIZE = Struct(">i")


def read_text(content: bytes | None) -> str | None:
    """The text of a text message, which is not compressed.

    Raises:
        ProtocolViolation: it is no text.
    """
    if content is None:
        return None
    if len(content) < _SIZE.size:
        raise ProtocolViolation("the body of a text message ends too soon")
    (size,) = _SIZE.unpack_from(content)
    if size == -1:
        return None
    end = _SIZE.size + size
    if not _SIZE.size <= end <= len(content):
        raise ProtocolViolation(f"the body of a text message lacks its {size} octets", size=size)
    return decode(content[_SIZE.size : end])


def write_text(text: str | None) -> bytes | None:
    """The body of a text message."""
    if text is None:
        return None
    octets = encode(text)
    return _SIZE.pack(len(octets)) + octets


def deflate(kind: type[Message], content: bytes) -> bytes:
    """The compressed body of a kind of message. That of a bytes message has the original size in front."""
    compressed = zlib.compress(content)
    return _SIZE.pack(len(content)) + compressed if issubclass(kind, ActiveMQBytesMessage) else compressed


def inflate(kind: type[Message], content: bytes, max_size: int) -> bytes:
    """The body of a kind of message, out of a compressed one.

    Args:
        max_size: of the body, in octets.

    Raises:
        ProtocolViolation: it is not compressed rightly.
        LimitExceeded: the body is larger. No more than that was inflated.
    """
    size = None
    if issubclass(kind, ActiveMQBytesMessage):
        if len(content) < _SIZE.size:
            raise ProtocolViolation("the compressed body of a bytes message ends too soon")
        (size,) = _SIZE.unpack_from(content)
        content = content[_SIZE.size :]
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(content, max_size + 1)
    except zlib.error as error:
        raise ProtocolViolation(f"a body is not compressed rightly: {error}") from error
    if len(body) > max_size:
        raise LimitExceeded(f"an inflated body has more than {max_size} octets", max_size=max_size)
    if not inflater.eof or size not in (None, len(body)):
        raise ProtocolViolation("a compressed body ends too soon", size=len(body))
    return body
