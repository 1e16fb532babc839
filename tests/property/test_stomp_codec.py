"""Properties of the STOMP codec: what is encoded comes back, and any bytes in any chunks are borne."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quire.message import escape
from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.frames import (
    BODY_COMMANDS,
    CLIENT_COMMANDS,
    SERVER_COMMANDS,
    UNESCAPED_COMMANDS,
    Version,
    content_for,
    encode_frame,
    encode_receipts,
)
from quire.protocols.stomp.heads import BLANKS
from tests.fuzz.stomp_decoder import PARTS, Frame, check_bytes, decode, fault_of, frames_of, streams

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\\:\r\n\0 \t"), max_size=12)
# In 1.1 a carriage return before the line feed is the end-of-line's; 1.0 has no escapes and trims.
TEXT_1_1 = TEXT.map(lambda text: text.rstrip("\r"))
TEXT_1_0 = TEXT.map(lambda text: text.replace("\n", "").replace("\r", "").strip(BLANKS.decode()))
OWN_HEADERS = {"content-length", "receipt"}
CHUNKS = st.lists(st.integers(1, 40), max_size=8)


def receive(decoder: Decoder, stream: bytes, sizes: list[int]) -> list[Frame]:
    """Feed a stream in chunks of these sizes, the rest at once."""
    events = []
    for size in sizes:
        events += decode(decoder, stream[:size])
        stream = stream[size:]
    return frames_of(events + decode(decoder, stream))


@st.composite
def frames(draw: st.DrawFn, version: Version) -> tuple[bytes, list[tuple[str, str]], bytes]:
    """Frames that a version can say."""
    command = draw(st.sampled_from(sorted((CLIENT_COMMANDS | SERVER_COMMANDS) - UNESCAPED_COMMANDS)))
    values = {Version.V1_0: TEXT_1_0, Version.V1_1: TEXT_1_1, Version.V1_2: TEXT}[version]
    names = values.map(lambda name: name.replace(":", "")) if version is Version.V1_0 else values
    fields = draw(st.lists(st.tuples(names.filter(lambda name: name and name not in OWN_HEADERS), values), max_size=5))
    return command, fields, draw(st.binary(max_size=40)) if command in BODY_COMMANDS else b""


@pytest.mark.slow
@given(st.data(), st.sampled_from(Version), CHUNKS)
def test_what_is_encoded_comes_back(data: st.DataObject, version: Version, sizes: list[int]) -> None:
    sent = data.draw(st.lists(frames(version), max_size=4))
    stream = b"\n".join(encode_frame(command, fields, body, version) for command, fields, body in sent)
    decoder = Decoder(Limits(), CLIENT_COMMANDS | SERVER_COMMANDS)
    decoder.version = version
    expected = [
        (command, tuple(fields) + ((("content-length", str(len(body))),) if body else ()), None, body)
        for command, fields, body in sent
    ]
    assert receive(decoder, stream, sizes) == expected
    assert fault_of(decoder) is None


@given(st.lists(TEXT, max_size=4), CHUNKS)
def test_receipts_come_back_raw_and_are_given_back_raw(receipts: list[str], sizes: list[int]) -> None:
    stream = b"".join(encode_frame(b"SEND", {"a": "b", "receipt": receipt}) for receipt in receipts)
    raw = [receipt for _, _, receipt, _ in receive(Decoder(Limits()), stream, sizes)]
    assert raw == [escape(receipt.encode()) for receipt in receipts]
    answers = receive(Decoder(Limits(), SERVER_COMMANDS), encode_receipts([r for r in raw if r is not None]), sizes)
    assert [dict(fields)["receipt-id"] for _, fields, _, _ in answers] == receipts


@given(st.lists(st.text("abc-\\:1ü", min_size=1, max_size=5), max_size=8), CHUNKS)
def test_a_run_of_acks_equals_single_frames(ids: list[str], sizes: list[int]) -> None:
    encoded = [encode_frame(b"ACK", {"id": ack}) for ack in ids]
    one_by_one = [frame for ack in encoded for frame in frames_of(decode(Decoder(Limits()), ack))]
    assert receive(Decoder(Limits()), b"".join(encoded), sizes) == one_by_one
    assert [dict(fields)["id"] for _, fields, _, _ in one_by_one] == ids


@given(st.dictionaries(TEXT_1_1.filter(bool), TEXT_1_1, max_size=4), st.binary(max_size=20))
def test_content_reads_the_same_in_1_1_and_1_2(headers: dict[str, str], body: bytes) -> None:
    lines = b"".join(escape(name.encode()) + b":" + escape(value.encode()) + b"\n" for name, value in headers.items())
    content = b"message-id:1\ncontent-length:%d\n" % len(body) + lines + b"\n" + body
    for version in (Version.V1_1, Version.V1_2):
        decoder = Decoder(Limits(), SERVER_COMMANDS)
        decoder.version = version
        [(_, fields, _, got)] = frames_of(decode(decoder, b"MESSAGE\n" + content_for(content, version) + b"\0"))
        assert fields[2:] == tuple(headers.items())
        assert got == body


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4))
def test_content_makes_no_header_in_1_0_that_was_not_there(headers: dict[str, str]) -> None:
    lines = b"".join(escape(name.encode()) + b":" + escape(value.encode()) + b"\n" for name, value in headers.items())
    decoder = Decoder(Limits(), SERVER_COMMANDS)
    decoder.version = Version.V1_0
    content = content_for(b"message-id:1\n" + lines + b"\n", Version.V1_0)
    [(_, fields, _, body)] = frames_of(decode(decoder, b"MESSAGE\n" + content + b"\0"))
    assert len(fields) == 1 + len(headers)
    assert {name for name, _ in fields if ":" not in name and "\\" not in name} <= {"message-id", *headers}
    assert body == b""


@given(st.binary(min_size=4, max_size=4), streams())
@example(b"\0\1\1\1", b"".join(PARTS))
def test_any_bytes_in_any_chunks_are_borne(choices: bytes, stream: bytes) -> None:
    check_bytes(choices + stream)
