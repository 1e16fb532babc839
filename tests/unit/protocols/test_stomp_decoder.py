"""The decoder against golden vectors, whole and cut at every octet, and its faults and limits."""

from typing import NamedTuple

import pytest

from quire.errors import LimitExceeded, ProtocolViolation, QuireError
from quire.protocols.stomp.decoder import BATCH, Decoder, Event, Limits
from quire.protocols.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, AckRun, Version
from tests.fuzz.stomp_decoder import Frame, decode, fault_of, frames_of

LIMITS = Limits(max_headers=3, max_line=120, max_body=50)


def frame(
    command: str, headers: dict[str, str] | None = None, body: bytes = b"", receipt: bytes | None = None
) -> Frame:
    return command.encode(), tuple((headers or {}).items()), receipt, body


class Vector(NamedTuple):
    """Bytes and what they mean: frames, then perhaps a fault whose text has some words."""

    name: str
    stream: bytes
    frames: list[Frame]
    error: type[QuireError] | None = None
    words: str = ""
    version: Version = Version.V1_2
    commands: frozenset[bytes] = CLIENT_COMMANDS


SEND = frame("SEND", {"destination": "/queue/a"}, b"hello")
REPEATED: Frame = (b"SEND", (("a", "1"), ("a", "2")), None, b"")

FRAMES = [
    Vector("body to NUL", b"SEND\ndestination:/queue/a\n\nhello\0", [SEND]),
    Vector("no headers", b"DISCONNECT\n\n\0", [frame("DISCONNECT")]),
    Vector("empty body", b"SEND\na:b\n\n\0", [frame("SEND", {"a": "b"})]),
    Vector("empty value", b"SEND\na:\n\n\0", [frame("SEND", {"a": ""})]),
    Vector("value with colons", b"SEND\na:b:c:\n\n\0", [frame("SEND", {"a": "b:c:"})]),
    Vector("value with spaces is not trimmed", b"SEND\na: b \n\n\0", [frame("SEND", {"a": " b "})]),
    Vector("repeated header", b"SEND\na:1\na:2\n\n\0", [REPEATED]),
    Vector(
        "content-length with NULs in the body",
        b"SEND\ncontent-length:3\n\n\0a\0\0",
        [frame("SEND", {"content-length": "3"}, b"\0a\0")],
    ),
    Vector("content-length 0", b"ACK\ncontent-length:0\n\n\0", [frame("ACK", {"content-length": "0"})]),
    Vector(
        "content-length in blanks", b"SEND\ncontent-length: 1 \n\nx\0", [frame("SEND", {"content-length": " 1 "}, b"x")]
    ),
    Vector("body with empty lines", b"SEND\na:b\n\n\n\nx\n\n\0", [frame("SEND", {"a": "b"}, b"\n\nx\n\n")]),
    Vector("UTF-8", "SEND\nä:ö\n\n\0".encode(), [frame("SEND", {"ä": "ö"})]),
    Vector("escapes of 1.2", rb"SEND" b"\n" rb"a\cb:\r\n\c\\n" b"\n\n\0", [frame("SEND", {"a:b": "\r\n:\\n"})]),
    Vector(
        "escapes of 1.1",
        rb"SEND" b"\n" rb"a\cb:\n\c\\r" b"\n\n\0",
        [frame("SEND", {"a:b": "\n:\\r"})],
        version=Version.V1_1,
    ),
    Vector(
        "no escapes in 1.0", rb"SEND" b"\n" rb"a:\c\t" b"\n\n\0", [frame("SEND", {"a": r"\c\t"})], version=Version.V1_0
    ),
    Vector("values are trimmed in 1.0", b"SEND\na : b\t \n\n\0", [frame("SEND", {"a ": "b"})], version=Version.V1_0),
    Vector("carriage return in 1.1", b"SEND\na:b\rc\n\n\0", [frame("SEND", {"a": "b\rc"})], version=Version.V1_1),
    Vector("body of a SUBSCRIBE in 1.0", b"SUBSCRIBE\n\nx\0", [frame("SUBSCRIBE", {}, b"x")], version=Version.V1_0),
    Vector("CRLF", b"SEND\r\ndestination:/queue/a\r\n\r\nhello\0\r\n", [SEND]),
    Vector("CRLF and a body with LF LF", b"SEND\r\na:b\r\n\r\nx\n\ny\0", [frame("SEND", {"a": "b"}, b"x\n\ny")]),
    Vector(
        "CRLF and a body like a receipt",
        b"SEND\na:b\n\r\n\nreceipt:1\n\n\0",
        [frame("SEND", {"a": "b"}, b"\nreceipt:1\n\n")],
    ),
    Vector("CRLF in one line", b"SEND\r\na:b\n\nx\0", [frame("SEND", {"a": "b"}, b"x")]),
    Vector("CRLF in 1.0", b"SEND\r\na:b\r\n\r\n\0", [frame("SEND", {"a": "b"})], version=Version.V1_0),
    Vector("heart-beats", b"\n\r\n\nSEND\na:b\n\n\0\n\r\n\n\nSEND\na:b\n\n\0\n", [frame("SEND", {"a": "b"})] * 2),
    Vector("heart-beats only", b"\n\n\n\r\n", []),
    Vector("a header without a name", b"ACK\n:x\nid:1\n\n\0", [frame("ACK", {"id": "1"})]),
    Vector("NULs between frames", b"\0SEND\na:b\n\n\0\0\n\0SEND\na:b\n\n\0\0", [frame("SEND", {"a": "b"})] * 2),
    Vector(
        "content-length of frames without a body",
        b"ACK\ncontent-length:7\nid:1\n\n\0SUBSCRIBE\ncontent-length:many\nid:1\n\n\0ACK\nid:2\n\n\0",
        [
            frame("ACK", {"content-length": "7", "id": "1"}),
            frame("SUBSCRIBE", {"content-length": "many", "id": "1"}),
            frame("ACK", {"id": "2"}),
        ],
    ),
    Vector("receipt", b"SEND\na:b\nreceipt:7\n\n\0", [frame("SEND", {"a": "b"}, receipt=b"7")]),
    Vector("receipt first", b"SEND\nreceipt:m-7\na:b\n\n\0", [frame("SEND", {"a": "b"}, receipt=b"m-7")]),
    Vector("receipt only", b"DISCONNECT\nreceipt:\n\n\0", [frame("DISCONNECT", receipt=b"")]),
    Vector("receipt with CRLF", b"SEND\na:b\nreceipt:7\r\n\n\0", [frame("SEND", {"a": "b"}, receipt=b"7")]),
    Vector("receipt stays escaped", rb"BEGIN" b"\n" rb"receipt:\c" b"\n\n\0", [frame("BEGIN", receipt=rb"\c")]),
    Vector("receipt in UTF-8", "BEGIN\nreceipt:ü\n\n\0".encode(), [frame("BEGIN", receipt="ü".encode())]),
    Vector("the first receipt counts", b"BEGIN\nreceipt:1\nreceipt:2\nreceipt:3\n\n\0", [frame("BEGIN", receipt=b"1")]),
    Vector(
        "receipt is trimmed in 1.0", b"BEGIN\nreceipt: 7 \n\n\0", [frame("BEGIN", receipt=b"7")], version=Version.V1_0
    ),
    Vector(
        "many with receipts",
        b"".join(b"SEND\na:b\nreceipt:%d\n\n%d\0" % (i, i) for i in range(5)),
        [frame("SEND", {"a": "b"}, b"%d" % i, b"%d" % i) for i in range(5)],
    ),
    Vector(
        "a known head and an odd receipt",
        b"SEND\na:b\n\n\0SEND\na:b\nreceipt:\\\\\n\n\0",
        [frame("SEND", {"a": "b"}), frame("SEND", {"a": "b"}, receipt=rb"\\")],
    ),
    Vector(
        "a known head is no prefix",
        b"SEND\na:b\n\n\0SEND\na:bc\n\n\0",
        [frame("SEND", {"a": "b"}), frame("SEND", {"a": "bc"})],
    ),
    Vector(
        "a known head is not one with a receipt in the middle",
        b"SEND\na:bc:d\n\n\0SEND\na:b\nreceipt:1\nc:d\n\n\0",
        [frame("SEND", {"a": "bc:d"}), frame("SEND", {"a": "b", "c": "d"}, receipt=b"1")],
    ),
    Vector(
        "ACKs",
        b"ACK\nid:1\n\n\0ACK\nid:a:2\n\n\0\n\nACK\nid:3\n\n\0",
        [frame("ACK", {"id": i}) for i in ("1", "a:2", "3")],
    ),
    Vector(
        "ACKs and others",
        b"ACK\nid:1\n\n\0ACK\nid:2\nreceipt:r\n\n\0ABORT\na:b\n\n\0ACK\nid:3\n\n\0",
        [
            frame("ACK", {"id": "1"}),
            frame("ACK", {"id": "2"}, receipt=b"r"),
            frame("ABORT", {"a": "b"}),
            frame("ACK", {"id": "3"}),
        ],
    ),
    Vector("ACK with an escape", rb"ACK" b"\n" rb"id:\c1" b"\n\n\0", [frame("ACK", {"id": ":1"})]),
    Vector("ACK with CRLF", b"ACK\r\nid:1\r\n\r\n\0", [frame("ACK", {"id": "1"})]),
    Vector("ACK in 1.1", b"ACK\nid:1\n\n\0", [frame("ACK", {"id": "1"})], version=Version.V1_1),
    Vector(
        "CONNECT knows no escapes",
        b"CONNECT\naccept-version:1.2\npasscode:\\c\\t\n\n\0",
        [frame("CONNECT", {"accept-version": "1.2", "passcode": r"\c\t"})],
    ),
    Vector(
        "STOMP knows no escapes",
        b"STOMP\naccept-version:1.1\nlogin:\\n\n\n\0",
        [frame("STOMP", {"accept-version": "1.1", "login": r"\n"})],
    ),
    Vector("CONNECT of 1.0 is trimmed", b"CONNECT\nlogin: me \n\n\0", [frame("CONNECT", {"login": "me"})]),
    Vector(
        "the version holds at once",
        b"CONNECT\naccept-version:1.0\n\n\0SEND\na:\\c \n\n\0",
        [frame("CONNECT", {"accept-version": "1.0"}), frame("SEND", {"a": r"\c"})],
    ),
    Vector(
        "unsupported version is the session's",
        b"CONNECT\naccept-version:3\n\n\0",
        [frame("CONNECT", {"accept-version": "3"})],
    ),
    Vector(
        "server frames",
        b"CONNECTED\nversion:1.1\n\n\0MESSAGE\nreceipt:x\nb:\\c\n\nhi\0\nRECEIPT\nreceipt-id:7\n\n\0ERROR\n\nno\0",
        [
            frame("CONNECTED", {"version": "1.1"}),
            frame("MESSAGE", {"receipt": "x", "b": ":"}, b"hi"),
            frame("RECEIPT", {"receipt-id": "7"}),
            frame("ERROR", {}, b"no"),
        ],
        commands=SERVER_COMMANDS,
    ),
    Vector(
        "limits are reached",
        b"SEND\na:1\nb:2\nc:3\nreceipt:4\n\n" + b"x" * 50 + b"\0",
        [frame("SEND", {"a": "1", "b": "2", "c": "3"}, b"x" * 50, b"4")],
    ),
    Vector("longest line", b"SEND\na:" + b"x" * 118 + b"\r\n\n\0", [frame("SEND", {"a": "x" * 118})]),
]

VIOLATIONS = [
    Vector(
        "after a good frame", b"BEGIN\n\n\0NONSENSE\n\n\0BEGIN\n\n\0", [frame("BEGIN")], ProtocolViolation, "'NONSENSE'"
    ),
    Vector("server's command from a client", b"MESSAGE\n\n\0", [], ProtocolViolation, "'MESSAGE'"),
    Vector("client's command from a server", b"SEND\n\n\0", [], ProtocolViolation, "'SEND'", commands=SERVER_COMMANDS),
    Vector("ACKs from a server", b"ACK\nid:1\n\n\0", [], ProtocolViolation, "'ACK'", commands=SERVER_COMMANDS),
    Vector("lower case", b"send\n\n\0", [], ProtocolViolation, "'send'"),
    Vector("not STOMP at all", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", [], ProtocolViolation, "'GET / HTTP/1.1'"),
    Vector("command that is no UTF-8", b"\xff\xfe\n\n\0", [], ProtocolViolation, r"xff"),
    Vector("no colon", b"SEND\na:b\nnothing\n\n\0", [], ProtocolViolation, "SEND, line 3: 'nothing'"),
    Vector("no name", b"SEND\n:b\n\n\0", [], ProtocolViolation, "SEND, line 2: ':b'"),
    Vector("undefined escape", rb"SEND" b"\n" rb"a:\t" b"\n\n\0", [], ProtocolViolation, "line 2"),
    Vector("escape at the end", b"SEND\nx:y\na:\\\n\n\0", [], ProtocolViolation, "line 3"),
    Vector("undefined escape in a name", rb"SEND" b"\n" rb"\x:a" b"\n\n\0", [], ProtocolViolation, "line 2"),
    Vector(
        "escape of 1.2 in 1.1",
        rb"SEND" b"\n" rb"a:\r" b"\n\n\0",
        [],
        ProtocolViolation,
        "STOMP 1.1",
        version=Version.V1_1,
    ),
    Vector("carriage return in 1.2", b"SEND\nx:y\na:b\rc\n\n\0", [], ProtocolViolation, "line 3"),
    Vector("header that is no UTF-8", b"SEND\na:b\nc:\xff\n\n\0", [], ProtocolViolation, "line 3: octet 0xff"),
    Vector("undefined escape in a receipt", rb"SEND" b"\n" rb"receipt:\t" b"\n\n\0", [], ProtocolViolation, "escape"),
    Vector("receipt that is no UTF-8", b"SEND\nreceipt:\xff\n\n\0", [], ProtocolViolation, "octet 0xff"),
    Vector(
        "bad receipt of a known head",
        b"SEND\na:b\n\n\0SEND\na:b\nreceipt:\\t\n\n\0",
        [frame("SEND", {"a": "b"})],
        ProtocolViolation,
        "escape",
    ),
    Vector("negative content-length", b"SEND\ncontent-length:-1\n\n\0", [], ProtocolViolation, "'-1'"),
    Vector("content-length in words", b"SEND\ncontent-length:many\n\n\0", [], ProtocolViolation, "'many'"),
    Vector("empty content-length", b"SEND\ncontent-length:\n\n\0", [], ProtocolViolation, "''"),
    Vector("content-length with a sign", b"SEND\ncontent-length:+1\n\nx\0", [], ProtocolViolation, "'+1'"),
    Vector("content-length in other digits", "SEND\ncontent-length:٣\n\nabc\0".encode(), [], ProtocolViolation, "'٣'"),
    Vector("body longer than content-length", b"SEND\ncontent-length:2\n\nabc\0", [], ProtocolViolation, "no NUL"),
    Vector("body of a SUBSCRIBE", b"SUBSCRIBE\nid:1\n\nx\0", [], ProtocolViolation, "SUBSCRIBE frame has no body"),
    Vector("nameless header of a SEND", b"SEND\n:x\n\n\0", [], ProtocolViolation, "':x' is no header"),
    Vector("no colon in an ACK", b"ACK\nid\n\n\0", [], ProtocolViolation, "'id' is no header"),
    Vector("body of an ACK", b"ACK\nid:1\ncontent-length:1\n\nx\0", [], ProtocolViolation, "ACK frame has no body"),
    Vector(
        "server chooses no version",
        b"CONNECTED\nversion:9\n\n\0",
        [],
        ProtocolViolation,
        "'9'",
        commands=SERVER_COMMANDS,
    ),
]

EXCESSES = [
    Vector("too many headers", b"SEND\na:1\nb:2\nc:3\nd:4\n\n\0", [], LimitExceeded, "more than 3 headers"),
    Vector("headers that never end", b"SEND\n" + b"a:1\n" * 9, [], LimitExceeded, "more than 3 headers"),
    Vector("receipts that never end", b"SEND\n" + b"receipt:1\n" * 9, [], LimitExceeded, "more than 3 headers"),
    Vector("line too long", b"SEND\na:" + b"x" * 119 + b"\n\n\0", [], LimitExceeded, "longer than 120 octets"),
    Vector("line that never ends", b"SEND\na:" + b"x" * 119, [], LimitExceeded, "longer than 120 octets"),
    Vector("command that never ends", b"x" * 121, [], LimitExceeded, "longer than 120 octets"),
    Vector(
        "receipt too long",
        b"SEND\na:b\n\n\0SEND\na:b\nreceipt:" + b"7" * 113 + b"\n\n\0",
        [frame("SEND", {"a": "b"})],
        LimitExceeded,
        "longer than 120 octets",
    ),
    Vector("content-length too large", b"SEND\ncontent-length:51\n\n", [], LimitExceeded, "limit is 50"),
    Vector(
        "content-length of 18 digits", b"SEND\ncontent-length:999999999999999999\n\n", [], LimitExceeded, "limit is 50"
    ),
    Vector("body too long", b"SEND\n\n" + b"x" * 51 + b"\0", [], LimitExceeded, "limit is 50"),
    Vector("body that never ends", b"SEND\n\n" + b"x" * 51, [], LimitExceeded, "limit is 50"),
]

VECTORS = FRAMES + VIOLATIONS + EXCESSES


def decoder_for(vector: Vector) -> Decoder:
    decoder = Decoder(LIMITS, vector.commands)
    decoder.version = vector.version
    return decoder


def assert_decoded(vector: Vector, decoder: Decoder, events: list[Event]) -> None:
    assert frames_of(events) == vector.frames
    fault = fault_of(decoder)
    if vector.error is None:
        assert fault is None
    else:
        assert type(fault) is vector.error
        assert vector.words in str(fault)
        assert decode(decoder, b"BEGIN\n\n\0" + b"ERROR\n\n\0") == []
    assert decoder.buffered == 0


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
class TestGoldenVectors:
    def test_whole(self, vector: Vector) -> None:
        decoder = decoder_for(vector)
        assert_decoded(vector, decoder, decode(decoder, vector.stream))

    def test_cut_in_two_anywhere(self, vector: Vector) -> None:
        for cut in range(len(vector.stream) + 1):
            decoder = decoder_for(vector)
            events = decode(decoder, vector.stream[:cut]) + decode(decoder, vector.stream[cut:])
            assert_decoded(vector, decoder, events)

    def test_octet_by_octet(self, vector: Vector) -> None:
        decoder = decoder_for(vector)
        events = [event for octet in vector.stream for event in decode(decoder, bytes([octet]))]
        assert_decoded(vector, decoder, events)

    def test_behind_other_frames(self, vector: Vector) -> None:
        """Known heads and positions other than 0 change nothing."""
        other = b"ERROR\nk:v\n\n\0\n" if vector.commands is SERVER_COMMANDS else b"SEND\nk:v\nreceipt:1\n\n\0\n" * 3
        decoder = decoder_for(vector)
        events = decode(decoder, other + vector.stream)
        assert_decoded(vector, decoder, events[other.count(b"\0") :])


def ack(number: int, end: bytes = b"") -> bytes:
    return b"ACK\nid:%d\n\n\0" % number + end


def ids_of_runs(stream: bytes) -> list[object]:
    decoder = Decoder(LIMITS)
    events = decode(decoder, stream)
    assert fault_of(decoder) is None
    assert not decoder.buffered
    return [head.ids for head, _, _ in events if isinstance(head, AckRun)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n\n"])
def test_acks_come_as_one_run(end: bytes) -> None:
    stream = ack(1, end) + ack(2, end) + ack(30, end) + b"BEGIN\nx:y\n\n\0" + ack(4, end)
    assert ids_of_runs(stream) == [[b"1", b"2", b"30"], [b"4"]]


def test_a_run_ends_where_the_end_of_lines_between_acks_change() -> None:
    assert ids_of_runs(ack(1) + ack(2, b"\n") + ack(3)) == [[b"1", b"2"], [b"3"]]
    assert ids_of_runs(ack(1, b"\n\n") + ack(2, b"\n") + ack(3, b"\n")) == [[b"1"], [b"2", b"3"]]


def test_a_run_has_a_limit() -> None:
    first, second = ids_of_runs(b"".join(map(ack, range(1500))))
    assert first == [b"%d" % number for number in range(1000)]
    assert second == [b"%d" % number for number in range(1000, 1500)]


def test_an_ack_with_a_receipt_right_behind_an_ack_is_a_frame_of_its_own() -> None:
    """Possessive quantifiers, as Python before 3.11.5 has them, take half of it into the run."""
    decoder = Decoder(LIMITS)
    events = decode(decoder, b"ACK\nid:1\n\n\0ACK\nid:2\nreceipt:r\n\n\0")
    assert fault_of(decoder) is None
    (run, _, _), (head, receipt, _) = events
    assert isinstance(run, AckRun)
    assert run.ids == [b"1"]
    assert (head.command, head.headers, receipt) == (b"ACK", {"id": "2"}, b"r")


def test_acks_of_1_1_do_not_come_as_runs() -> None:
    """There an id does not say which message is meant, so the session must see the headers."""
    decoder = Decoder(LIMITS)
    decoder.version = Version.V1_1
    events = decode(decoder, b"ACK\nid:1\n\n\0ACK\nid:2\n\n\0")
    assert [head.headers for head, _, _ in events] == [{"id": "1"}, {"id": "2"}]


@pytest.mark.parametrize("end", [b"", b"\n\0"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_head_of_many_lines_has_a_limit(end: bytes, size: int) -> None:
    decoder = Decoder(Limits(max_headers=100, max_line=20, max_body=50))
    stream = b"SEND\n" + b"a:1234567\n" * 16 + end
    for start in range(0, len(stream), size):
        assert decode(decoder, stream[start : start + size]) == []
    fault = fault_of(decoder)
    assert isinstance(fault, LimitExceeded)
    assert fault.data == {"max_head": 160}


@pytest.mark.parametrize("lines", ["a:b\nreceipt:%d", "receipt:%d\na:b", "receipt:%d\r\na:b"])
def test_sends_that_differ_in_receipt_and_body_share_their_head(lines: str) -> None:
    stream = "".join(f"SEND\n{lines % number}\n\n{number}\0" for number in range(4)).encode()
    heads = [head for head, _, _ in decode(Decoder(LIMITS), stream)]
    assert heads == [heads[0]] * 4


def test_headers_have_the_first_of_a_repeated_header() -> None:
    [(head, _, _)] = decode(Decoder(LIMITS), b"SEND\na:1\nb:2\na:3\n\n\0")
    assert head.headers == {"a": "1", "b": "2"}


def test_another_version_reads_a_known_head_anew() -> None:
    decoder = Decoder(LIMITS)
    [(head, _, _)] = decode(decoder, b"SEND\na:\\c\n\n\0")
    decoder.version = Version.V1_0
    [(head_of_1_0, _, _)] = decode(decoder, b"SEND\na:\\c\n\n\0")
    assert (head.headers["a"], head_of_1_0.headers["a"]) == (":", "\\c")


def test_connect_and_connected_set_the_version() -> None:
    decoder, client = Decoder(LIMITS), Decoder(LIMITS, SERVER_COMMANDS)
    decode(decoder, b"CONNECT\naccept-version:1.0,1.1\n\n\0")
    decode(client, b"CONNECTED\nversion:1.1\n\n\0")
    assert decoder.version is client.version is Version.V1_1


def test_a_stream_of_ever_new_heads_is_not_remembered() -> None:
    decoder = Decoder(Limits())
    for number in range(1000):
        decode(decoder, b"SEND\na:%d\n\n\0" % number)
    assert len(decoder._heads) <= 64


def test_events_come_in_batches() -> None:
    decoder = Decoder(LIMITS)
    decoder.receive(b"".join([b"SEND\n\n%d\0" % number for number in range(2 * BATCH + 1)]) + b"SEND\n\nx")
    assert [len(decoder.next_events()) for _ in range(4)] == [BATCH, BATCH, 1, 0]
    decoder.receive(b"y\0" * 2)
    assert [body for _, _, body in decoder.next_events()] == [b"xy"]


def test_octets_that_come_before_all_are_decoded_are_decoded_behind_them() -> None:
    decoder = Decoder(LIMITS)
    bodies = [b"%d" % number for number in range(2 * BATCH)]
    stream = b"".join([b"SEND\n\n" + body + b"\0" for body in bodies])
    decoder.receive(stream[: len(stream) - 9])
    events = decoder.next_events()
    decoder.receive(stream[len(stream) - 9 :])
    while more := decoder.next_events():
        events += more
    assert [body for _, _, body in events] == bodies


def test_a_fault_is_raised_once_what_came_before_it_is_handed_out() -> None:
    decoder = Decoder(LIMITS)
    decoder.receive(b"SEND\n\n1\0WRONG\n\n\0")
    assert [body for _, _, body in decoder.next_events()] == [b"1"]
    for _ in range(2):
        with pytest.raises(ProtocolViolation, match="WRONG"):
            decoder.next_events()
        decoder.receive(b"SEND\n\n2\0")


def test_faults_carry_data() -> None:
    decoder = Decoder(LIMITS)
    decode(decoder, b"SEND\na:b\nc\n\n\0")
    fault = fault_of(decoder)
    assert fault is not None
    assert fault.data == {"command": "SEND", "line": 3}


def test_a_body_that_comes_in_many_chunks_is_whole() -> None:
    body = bytes(range(256)) * 4000
    decoder = Decoder(Limits())
    stream = b"SEND\ncontent-length:%d\n\n" % len(body) + body + b"\0"
    events = [event for start in range(0, len(stream), 1000) for event in decode(decoder, stream[start : start + 1000])]
    assert [event[2] for event in events] == [body]
