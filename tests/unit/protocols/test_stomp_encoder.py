"""The encoder: golden bytes, versions, and what cannot be written."""

import pytest

from quire.errors import ERRORS, InvalidHeader, ProtocolViolation, UnsupportedVersion
from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.frames import (
    SERVER_COMMANDS,
    Version,
    content_for,
    encode_frame,
    encode_receipts,
    error_frame,
)
from tests.fuzz.stomp_decoder import decode, fault_of

V1_0, V1_1, V1_2 = Version


@pytest.mark.parametrize(
    ("command", "headers", "body", "version", "encoded"),
    [
        (b"DISCONNECT", {}, b"", V1_2, b"DISCONNECT\n\n\0"),
        (b"SEND", {"a": "b", "c": ""}, b"", V1_2, b"SEND\na:b\nc:\n\n\0"),
        (b"SEND", {"a": "b"}, b"x\0", V1_2, b"SEND\na:b\ncontent-length:2\n\nx\0\0"),
        (b"SEND", {"content-length": "9", "a": "b"}, b"x", V1_2, b"SEND\na:b\ncontent-length:1\n\nx\0"),
        (b"SEND", {"content-length": "9"}, b"", V1_2, b"SEND\n\n\0"),
        (b"SEND", {"ü": "ö"}, b"", V1_2, "SEND\nü:ö\n\n\0".encode()),
        (b"SEND", {"a:b": "\r\n:\\"}, b"", V1_2, b"SEND\na\\cb:\\r\\n\\c\\\\\n\n\0"),
        (b"SEND", {"a:b": "\r\n:\\r"}, b"", V1_1, b"SEND\na\\cb:\r\\n\\c\\\\r\n\n\0"),
        (b"SEND", {"a": ":\\"}, b"", V1_0, b"SEND\na::\\\n\n\0"),
        (b"CONNECT", {"passcode": ":\\c"}, b"", V1_2, b"CONNECT\npasscode::\\c\n\n\0"),
        (b"CONNECTED", {"session": "a:1"}, b"", V1_2, b"CONNECTED\nsession:a:1\n\n\0"),
    ],
)
def test_frames(command: bytes, headers: dict[str, str], body: bytes, version: Version, encoded: bytes) -> None:
    assert encode_frame(command, headers, body, version) == encoded


def test_headers_may_be_pairs() -> None:
    assert encode_frame(b"SEND", iter([("a", "1"), ("a", "2")])) == b"SEND\na:1\na:2\n\n\0"


@pytest.mark.parametrize(
    ("command", "name", "value", "version"),
    [
        (b"SEND", "", "b", V1_2),
        (b"SEND", "", "b", V1_0),
        (b"SEND", "a", "b\nc:d", V1_0),
        (b"SEND", "a", "b\r", V1_0),
        (b"SEND", "a\n", "b", V1_0),
        (b"SEND", "a:b", "c", V1_0),
        (b"CONNECT", "passcode", "a\nb", V1_2),
        (b"STOMP", "passcode", "a\rb", V1_2),
        (b"CONNECTED", "a:b", "c", V1_1),
    ],
)
def test_what_cannot_be_written_is_refused(command: bytes, name: str, value: str, version: Version) -> None:
    with pytest.raises(InvalidHeader):
        encode_frame(command, {"x": "y", name: value}, version=version)


def test_receipts() -> None:
    assert encode_receipts([]) == b""
    assert encode_receipts([b"1"]) == b"RECEIPT\nreceipt-id:1\n\n\0"
    assert encode_receipts([b"1", b"\\c"]) == b"RECEIPT\nreceipt-id:1\n\n\0RECEIPT\nreceipt-id:\\c\n\n\0"


CONTENT = b"message-id:ID\\c1\nname\\cx:\\c\\\\n\\n\\r\n\nbody\\c\n\n\\r"


@pytest.mark.parametrize(
    ("version", "fitted"),
    [
        (V1_2, CONTENT),
        (V1_1, b"message-id:ID\\c1\nname\\cx:\\c\\\\n\\n\r\n\nbody\\c\n\n\\r"),
        (V1_0, b"message-id:ID:1\nname\\cx::\\n\\n\\r\n\nbody\\c\n\n\\r"),
    ],
)
def test_content_for_each_version(version: Version, fitted: bytes) -> None:
    assert content_for(CONTENT, version) == fitted


@pytest.mark.parametrize("version", Version)
def test_content_without_escapes_is_passed_on_as_it_is(version: Version) -> None:
    content = b"message-id:1\n\nbody\\c"
    assert content_for(content, version) is content


def test_error_frame() -> None:
    error = ProtocolViolation("line one: bad\nline two")
    frame = error_frame(error, V1_2, b"r\\c7")
    [(head, _, body)] = decode(Decoder(Limits(), SERVER_COMMANDS), frame)
    assert head.headers == {
        "receipt-id": "r:7",
        "message": "protocol-violation: line one: bad line two",
        "code": "protocol-violation",
        "content-type": "text/plain",
        "content-length": str(head.content_length),
    }
    assert body == f"line one: bad\nline two\n{ERRORS['protocol-violation'].advice}\n".encode()


@pytest.mark.parametrize("version", Version)
def test_error_frame_of_any_text_in_any_version(version: Version) -> None:
    decoder = Decoder(Limits(), SERVER_COMMANDS)
    decoder.version = version
    [(head, _, _)] = decode(decoder, error_frame(ProtocolViolation("\\x\r\n:" * 200), version, None))
    assert fault_of(decoder) is None
    assert "receipt-id" not in head.headers


def test_error_frame_of_an_unsupported_version_names_the_supported_ones() -> None:
    assert b"\nversion:1.0,1.1,1.2\n" in error_frame(UnsupportedVersion("no"), V1_0, None)
