"""The encoder: frames to bytes, by the rules of the connection's version."""

import re
from collections.abc import Iterable, Mapping

from quire.errors import InvalidHeader, QuireError, UnsupportedVersion
from quire.message import escape
from quire.protocols.stomp.frames import UNESCAPED_COMMANDS, Version

_MAX_SHORT_TEXT = 200
_LINE_END = re.compile(r"[\r\n]")

# What an older version needs of text with the escapes of 1.2: a pattern, and what to put for what it finds.
_FROM_1_2 = {
    Version.V1_1: (re.compile(rb"\\."), {rb"\r": b"\r"}),
    # Found as a whole and left alone: a name. A colon in it would end it early and make another header of it.
    Version.V1_0: (re.compile(rb"^[^:\n]*:|\\.", re.MULTILINE), {rb"\c": b":", rb"\\": b"\\"}),
}


def encode_frame(
    command: bytes,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes = b"",
    version: Version = Version.V1_2,
) -> bytes:
    """Write a frame.

    Args:
        version: whose escapes are used; none in CONNECT, STOMP and CONNECTED (STOMP 1.2, "Value Encoding").

    Raises:
        InvalidHeader: a name is empty, or a header has an octet that cannot be escaped here, as a line feed in 1.0.
    """
    fields = headers.items() if isinstance(headers, Mapping) else headers
    kept = [field for field in fields if field[0] != "content-length"]
    text = "\n".join([f"{name}:{value}" for name, value in kept])
    # Counting tells at once whether there is anything to escape; mostly there is not.
    if (
        "\\" in text
        or "\r" in text
        or text.count(":") != len(kept)
        or text.count("\n") >= len(kept)
        or "\n:" in "\n" + text
    ):
        lines = [_line(name, value, command, version) for name, value in kept]
    else:
        lines = [text.encode()]
    if body:
        lines.append(b"content-length:%d" % len(body))
    return b"\n".join([command, *lines, b"\n"]) + body + b"\0"


def encode_receipts(ids: list[bytes]) -> bytes:
    """Write RECEIPT frames."""
    if not ids:
        return b""
    return b"RECEIPT\nreceipt-id:" + b"\n\n\0RECEIPT\nreceipt-id:".join(ids) + b"\n\n\0"


def content_for(content: bytes, version: Version) -> bytes:
    r"""Fit a stored message into a MESSAGE frame of a version.

    Args:
        content: header lines with the escapes of 1.2, an empty line, the body (``quire.message``).

    Returns:
        The content, in 1.1 with carriage returns instead of ``\r``, in 1.0 without escapes. What 1.0 cannot say keeps
        its escape, for nothing else would be safe: line ends, and colons in names.
    """
    if version is Version.V1_2:
        return content
    end = content.index(b"\n\n")
    if content.find(b"\\", 0, end) < 0:
        return content
    pattern, replacements = _FROM_1_2[version]
    return pattern.sub(lambda found: replacements.get(found[0], found[0]), content[:end]) + content[end:]


def error_frame(error: QuireError, version: Version, receipt: bytes | None) -> bytes:
    """Write the ERROR frame of an error.

    Args:
        receipt: the raw ``receipt`` of the frame that caused it, or None.
    """
    text = str(error)
    short = " ".join(text[:_MAX_SHORT_TEXT].split())
    headers = {"message": f"{error.code}: {short}", "code": error.code, "content-type": "text/plain"}
    if isinstance(error, UnsupportedVersion):
        headers["version"] = ",".join(Version)
    frame = encode_frame(b"ERROR", headers, f"{text}\n{error.entry.advice}\n".encode(), version)
    return frame if receipt is None else frame.replace(b"\n", b"\nreceipt-id:" + receipt + b"\n", 1)


def _line(name: str, value: str, command: bytes, version: Version) -> bytes:
    if not name:
        raise InvalidHeader(f"a header of a {command.decode()} frame has no name", header=name)
    if version is not Version.V1_0 and command not in UNESCAPED_COMMANDS:
        return _escape(name, version) + b":" + _escape(value, version)
    if ":" in name or _LINE_END.search(name + value):
        raise InvalidHeader(f"{name[:60]!r} cannot be written in a {command.decode()} frame", header=name[:60])
    return f"{name}:{value}".encode()


def _escape(text: str, version: Version) -> bytes:
    if version is Version.V1_1:
        # 1.1 has no escape for a carriage return and sends it as it is.
        return b"\r".join(escape(part.encode()) for part in text.split("\r"))
    return escape(text.encode())
