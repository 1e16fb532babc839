"""Header lines of many messages at once: what comes out is what a message says of itself."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.arrow.lanes import Heads
from quire.message import Message, header_lines

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = st.one_of(st.sampled_from(["key", "partition-key", "Key", "akey"]), TEXTS.filter(bool))
OTHERS = st.dictionaries(NAMES.filter(lambda name: name not in ("message-id", "timestamp")), TEXTS, max_size=4)
MESSAGES = st.lists(st.tuples(TEXTS, st.integers(0, 2_000_000_000_000), OTHERS), min_size=1, max_size=6)


def content(message_id: str, time: int, others: dict[str, str], body: bytes = b"") -> bytes:
    return header_lines({"message-id": message_id, "timestamp": str(time), **others}) + b"\n" + body


def heads_of(*contents: bytes) -> Heads:
    return Heads(pa.array([one[: one.index(b"\n\n")] for one in contents], pa.binary()))


@pytest.mark.slow
@given(MESSAGES)
def test_ids_times_and_headers_are_those_of_the_messages(given: list[tuple[str, int, dict[str, str]]]) -> None:
    contents = [content(*one) for one in given]
    messages = [Message(1, one) for one in contents]
    heads = heads_of(*contents)
    assert heads.message_ids().to_pylist() == [message.id for message in messages]
    assert heads.timestamps().to_pylist() == [EPOCH + timedelta(milliseconds=time) for _, time, _ in given]
    assert heads.header("key").to_pylist() == [message.header(b"key") for message in messages]
    assert [dict(pairs) for pairs in heads.maps().to_pylist()] == [message.headers() for message in messages]


def test_of_a_repeated_header_the_first_counts() -> None:
    heads = heads_of(b"message-id:1\ntimestamp:1\nkey:a\nkey:b\n\n", b"message-id:2\ntimestamp:2\ncolour:red\n\n")
    assert heads.header("key").to_pylist() == ["a", None]
    assert heads.maps().to_pylist() == [
        [("message-id", "1"), ("timestamp", "1"), ("key", "a")],
        [("message-id", "2"), ("timestamp", "2"), ("colour", "red")],
    ]


def test_a_header_is_found_by_its_whole_name() -> None:
    assert heads_of(b"message-id:1\ntimestamp:1\nmonkey:a\nkeys:b\n\n").header("key").to_pylist() == [None]


@pytest.mark.parametrize(
    ("written", "text"),
    [(b"a\\cb", "a:b"), (b"a\\\\cb", "a\\cb"), (b"a\\nb", "a\nb"), (b"a\\r", "a\r"), (b"", ""), (b"\xff", "\ufffd")],
)
def test_escapes_are_undone_and_what_is_not_utf_8_is_shown_as_such(written: bytes, text: str) -> None:
    heads = heads_of(b"message-id:" + written + b"\ntimestamp:1\nkey:" + written + b"\n\n")
    assert heads.message_ids().to_pylist() == [text]
    assert heads.header("key").to_pylist() == [text]
    assert dict(heads.maps().to_pylist()[0])["key"] == text
