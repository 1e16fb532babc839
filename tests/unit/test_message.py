"""The message record and its content: header lines with STOMP 1.2 escapes, an empty line, the body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.message import Message, escape, header_lines, unescape, with_headers

NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name not in ("message-id", "timestamp"))
HEADERS = st.dictionaries(NAMES, st.text(max_size=20), max_size=6)
ORDER = header_lines({"message-id": "ID:host-1:7", "timestamp": "1700000000000", "type": "order"}) + b"\n"


def content_of(headers: dict[str, str], body: bytes) -> bytes:
    return header_lines({"message-id": "m1", "timestamp": "5"} | headers) + b"\n" + body


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        (b"", b""),
        (b"plain", b"plain"),
        (b"a:b", b"a\\cb"),
        (b"line\nfeed", b"line\\nfeed"),
        (b"carriage\rreturn", b"carriage\\rreturn"),
        (b"back\\slash", b"back\\\\slash"),
        (b"\\n", b"\\\\n"),
        (b"\\:\r\n", b"\\\\\\c\\r\\n"),
    ],
)
def test_escapes_are_those_of_stomp_1_2(plain: bytes, escaped: bytes) -> None:
    assert escape(plain) == escaped
    assert unescape(escaped) == plain


@pytest.mark.parametrize("wrong", [b"\\t", b"ok\\", b"a\\\\\\", b"\\N", b"\\cab\\0"])
def test_an_undefined_escape_is_an_error(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="undefined escape"):
        unescape(wrong)


@given(st.binary())
def test_what_is_escaped_fits_into_a_header_and_comes_back(plain: bytes) -> None:
    escaped = escape(plain)
    assert not set(escaped) & set(b"\r\n:")
    assert unescape(escaped) == plain


@given(st.binary())
def test_unescaping_gives_bytes_that_escape_to_the_same_or_says_no(text: bytes) -> None:
    try:
        plain = unescape(text)
    except ValueError:
        return
    assert unescape(escape(plain)) == plain


def test_a_new_record_has_its_size_and_no_history() -> None:
    message = Message(7, ORDER + b"body")
    assert (message.sequence, message.size, message.expiration, message.priority) == (7, len(ORDER) + 4, 0, 4)
    assert message.persistent
    assert (message.deliveries, message.failures, message.redelivered) == (0, 0, False)


def test_id_headers_and_body_are_read_from_the_content() -> None:
    message = Message(1, ORDER + b"a\n\nbody:with\0anything")
    assert message.id == "ID:host-1:7"
    assert message.headers() == {"message-id": "ID:host-1:7", "timestamp": "1700000000000", "type": "order"}
    assert message.body == b"a\n\nbody:with\0anything"


def test_of_a_repeated_header_the_first_counts() -> None:
    message = Message(1, b"message-id:m\ntimestamp:1\ncolour:red\ncolour:blue\n\n")
    assert message.headers()["colour"] == "red"


def test_bytes_that_are_no_utf_8_are_shown_and_do_not_break_the_reader() -> None:
    message = Message(1, b"message-id:m\xff\ntimestamp:1\nx:\xfe\n\n")
    assert message.id == "m\N{REPLACEMENT CHARACTER}"
    assert message.headers()["x"] == "\N{REPLACEMENT CHARACTER}"


def test_a_record_describes_itself_without_its_content() -> None:
    assert repr(Message(3, ORDER + b"secret")) == f"<Message 3 {len(ORDER) + 6} bytes deliveries=0>"


@given(HEADERS, st.binary())
def test_headers_and_body_come_back_as_they_were_written(headers: dict[str, str], body: bytes) -> None:
    message = Message(1, content_of(headers, body))
    assert message.headers() == {"message-id": "m1", "timestamp": "5"} | headers
    assert message.id == "m1"
    assert message.body == body


@given(HEADERS, HEADERS, st.binary())
def test_with_headers_adds_and_replaces_and_leaves_the_rest(
    headers: dict[str, str], added: dict[str, str], body: bytes
) -> None:
    before = content_of(headers, body)
    message = Message(1, with_headers(before, added))
    assert message.headers() == Message(1, before).headers() | added
    assert message.body == body
    assert message.content.startswith(b"message-id:m1\ntimestamp:5\n")


def test_with_headers_leaves_no_second_line_of_a_replaced_header() -> None:
    before = b"message-id:m\ntimestamp:1\ncause:a\nkept:k\ncause:b\n\nbody"
    assert with_headers(before, {"cause": "c:d"}) == b"message-id:m\ntimestamp:1\nkept:k\ncause:c\\cd\n\nbody"
