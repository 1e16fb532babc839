"""Reading a head: from the lines of a frame to its ``Head``, by the rules of the connection's version."""

import re

from quire.errors import ProtocolViolation
from quire.protocols.stomp.frames import BODY_COMMANDS, UNESCAPED_COMMANDS, Head
from quire.protocols.stomp.versions import Version

BLANKS = bytes(range(33))
"""What 1.0 trims off values: the octets up to the space. The specification is silent; ActiveMQ does so."""

_BLANKS_TEXT = BLANKS.decode()
_ESCAPE = re.compile(r"\\.?", re.DOTALL)
_ESCAPES_1_1 = {r"\n": "\n", r"\c": ":", r"\\": "\\"}
_ESCAPES_1_2 = {**_ESCAPES_1_1, r"\r": "\r"}


def parse_head(block: bytes, version: Version) -> Head:
    r"""Read a head. A header without a name is passed over where it is no part of a message (ActiveMQ, RabbitMQ).

    Raises:
        ProtocolViolation: a line without a colon or a name, an undefined escape, a bare carriage return in 1.2, text
            that is not UTF-8, or a bad ``content-length``. ``data`` has the ``command`` and the ``line``, from 1.
    """
    command = block.partition(b"\n")[0]
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = block.count(b"\n", 0, error.start) + 1
        raise _violation(command, line, f"octet {block[error.start]:#04x} is not UTF-8") from None
    if "\r" in text and version is Version.V1_2:
        raise _violation(command, text[: text.index("\r")].count("\n") + 1, r"write a carriage return as \r")
    lines = text[:-1].split("\n")[1:]
    parts = [line.partition(":") for line in lines]
    fields = [(name, value) for name, colon, value in parts if name and colon]
    if len(fields) != len(lines) and (command in BODY_COMMANDS or not all([colon for _, colon, _ in parts])):
        raise _no_header(command, lines)
    if version is Version.V1_0:
        fields = [(name, value.strip(_BLANKS_TEXT)) for name, value in fields]
    elif "\\" in text and command not in UNESCAPED_COMMANDS:
        fields = _unescaped(fields, version, command)
    return Head(command, tuple(fields))


def _no_header(command: bytes, lines: list[str]) -> ProtocolViolation:
    number, line = next((number, line) for number, line in enumerate(lines, 2) if line.find(":") < 1)
    return _violation(command, number, f"{line[:60]!r} is no header: write name:value")


def _unescaped(fields: list[tuple[str, str]], version: Version, command: bytes) -> list[tuple[str, str]]:
    escapes = _ESCAPES_1_1 if version is Version.V1_1 else _ESCAPES_1_2
    plain = []
    for number, field in enumerate(fields, 2):
        try:
            name, value = (_ESCAPE.sub(lambda found: escapes[found[0]], part) for part in field)
        except KeyError as error:
            raise _violation(command, number, f"{error.args[0]!r} is no escape of STOMP {version}") from None
        plain.append((name, value))
    return plain


def _violation(command: bytes, line: int, text: str) -> ProtocolViolation:
    name = command[:20].decode("ascii", "backslashreplace")
    return ProtocolViolation(f"{name}, line {line}: {text}", command=name, line=line)
