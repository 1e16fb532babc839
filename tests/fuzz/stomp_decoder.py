"""Fuzz the STOMP decoder: ``python -m tests.fuzz.stomp_decoder --seconds 60``; exits 1 on a finding.

The search is guided by coverage if atheris is installed, else driven by Hypothesis. ``check`` is what must hold for any
bytes; the property tests use it too.
"""

import contextlib
import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from quire.errors import QuireError
from quire.protocols.stomp.decoder import BATCH, Decoder, Event, Limits
from quire.protocols.stomp.frames import (
    BODY_COMMANDS,
    CLIENT_COMMANDS,
    SERVER_COMMANDS,
    UNESCAPED_COMMANDS,
    AckRun,
    Version,
    encode_frame,
)
from tests.fuzz.fuzzing import Guided, main

LIMITS = (Limits(max_headers=4, max_line=40, max_body=60), Limits(max_headers=20, max_line=200, max_body=500))
EXAMPLES_A_SECOND = 500

PARTS = [
    *sorted(CLIENT_COMMANDS | SERVER_COMMANDS), b"\n", b"\n\n", b"\r\n", b"\r", b"\0", b"\n\n\0", b":", b"\\c", b"\\r",
    b"\\t", b"receipt:", b"\nreceipt:7", b"id:12", b"ACK\nid:1\n\n\0", b"content-length:3\n", b"content-length:-1\n",
    b"accept-version:1.1\n", b"version:1.0\n", b"SEND\ndestination:/queue/a\nreceipt:1\n\nabc\0", b" ", b"\xff",
    b"\xc3\xa9",
]  # fmt: skip

Frame = tuple[bytes, tuple[tuple[str, str], ...], bytes | None, bytes]
"""A frame in a form that compares: command, headers, raw receipt, body."""


def decode(decoder: Decoder, data: bytes) -> list[Event]:
    decoder.receive(data)
    events: list[Event] = []
    with contextlib.suppress(QuireError):
        while more := decoder.next_events():
            assert len(more) <= BATCH
            events += more
    return events


def fault_of(decoder: Decoder) -> QuireError | None:
    """What was wrong with the input of a decoder that has nothing left to decode; None if nothing was."""
    try:
        assert decoder.next_events() == []
    except QuireError as fault:
        return fault
    return None


def frames_of(events: Iterable[Event]) -> list[Frame]:
    """Events as frames, each ACK of a run as one of its own."""
    frames: list[Frame] = []
    for head, receipt, body in events:
        if isinstance(head, AckRun):
            frames += [(b"ACK", (("id", ack.decode()),), None, b"") for ack in head.ids]
        else:
            frames.append((head.command, head.fields, receipt, bytes(body)))
    return frames


def check(
    stream: bytes, sizes: list[int], limits: Limits, version: Version, commands: frozenset[bytes] = CLIENT_COMMANDS
) -> None:
    whole, pieces = Decoder(limits, commands), Decoder(limits, commands)
    whole.version = pieces.version = version
    expected = frames_of(decode(whole, stream))
    events: list[Event] = []
    position = 0
    for size in itertools.cycle(sizes or [1]):
        if position >= len(stream):
            break
        events += decode(pieces, stream[position : position + max(size, 1)])
        position += max(size, 1)
        assert pieces.buffered <= max(limits.max_head, limits.max_body), "more is kept than the limits allow"
    assert frames_of(events) == expected, "the frames depend on how the stream is cut"
    assert whole.version == pieces.version, "the version depends on how the stream is cut"
    assert type(fault_of(whole)) is type(fault_of(pieces)), "the fault depends on how the stream is cut"
    if fault_of(pieces) is None:
        assert whole.buffered == pieces.buffered, "what is kept depends on how the stream is cut"
    else:
        assert not pieces.buffered, "something is kept after a fault"
        assert not decode(pieces, b"SEND\ndestination:q\n\n\0"), "something is decoded after a fault"
    check_again(expected, whole.version)


def check_again(frames: list[Frame], version: Version) -> None:
    """Encode what was decoded and decode it again: it must come back as it was.

    Left out is what cannot be written in every version: anything in 1.0, colons in the names of CONNECT, a carriage
    return before a line's end in 1.1.
    """
    for command, fields, _, body in frames:
        kept = tuple(field for field in fields if field[0] != "content-length")
        unwritable = command in UNESCAPED_COMMANDS or any(value.endswith("\r") for _, value in kept)
        if version is Version.V1_0 or unwritable:
            continue
        # In 1.0 any frame may have had a body.
        body = body if command in BODY_COMMANDS else b""
        decoder = Decoder(Limits(), CLIENT_COMMANDS | SERVER_COMMANDS)
        decoder.version = version
        length = (("content-length", str(len(body))),) if body else ()
        again = frames_of(decode(decoder, encode_frame(command, kept, body, version)))
        assert again == [(command, kept + length, None, body)], "a frame changes on the way"


def check_bytes(data: bytes) -> None:
    choice, *sizes = data[:4] or b"\0"
    commands = SERVER_COMMANDS if choice & 1 else CLIENT_COMMANDS
    check(data[4:], [size % 64 for size in sizes], LIMITS[choice >> 1 & 1], list(Version)[(choice >> 2) % 3], commands)


def streams() -> st.SearchStrategy[bytes]:
    """Bytes that often are nearly frames."""
    return st.lists(st.sampled_from(PARTS) | st.binary(max_size=8), max_size=30).map(b"".join)


@given(st.binary(min_size=4, max_size=4), streams())
def search(choices: bytes, stream: bytes) -> None:
    check_bytes(choices + stream)


if __name__ == "__main__":
    corpus = [bytes([choice, 5, 1, 40]) + b"".join(PARTS[choice:]) for choice in range(12)]
    main(search, EXAMPLES_A_SECOND, Guided(check_bytes, [Decoder], corpus, PARTS))
