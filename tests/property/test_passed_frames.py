"""Frames that are passed on mean the same, however they are cut on the way."""

from hypothesis import given
from hypothesis import strategies as st

from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.encoder import encode_frame
from quire.protocols.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS
from quire.protocols.stomp.passed_frames import ServerFrames, head_lines, passed_frame
from quire.protocols.stomp.versions import Version

Read = list[tuple[bytes, tuple[tuple[str, str], ...], bytes | None, bytes]]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = TEXT.filter(lambda name: name not in ("", "receipt", "content-length"))
HEADERS = st.lists(st.tuples(NAMES, TEXT), max_size=5)
BODIES = st.binary(max_size=40)
VERSIONS = st.sampled_from([Version.V1_1, Version.V1_2])


def server_frame(command: bytes, headers: list[tuple[str, str]], body: bytes, *, counted: bool) -> bytes:
    """A frame of a server; without a length its body has no NUL."""
    if command not in (b"MESSAGE", b"ERROR"):
        body = b""
    if counted:
        return encode_frame(command, headers, body)
    return encode_frame(command, headers)[:-1] + body.replace(b"\0", b"") + b"\0"


FRAMES = st.lists(
    st.builds(
        server_frame, st.sampled_from([b"MESSAGE", b"RECEIPT", b"ERROR"]), HEADERS, BODIES, counted=st.booleans()
    ),
    max_size=6,
)


@given(FRAMES, st.integers(1, 50), st.booleans(), st.sampled_from([b"", b"\n", b"\n\n"]))
def test_whole_frames_come_out_in_their_order_however_they_are_cut(
    frames: list[bytes], piece: int, one_by_one: bool, between: bytes
) -> None:
    whole = b"".join([frame + between for frame in frames])
    cutter = ServerFrames()
    cutter.one_by_one = one_by_one
    pieces = [out for at in range(0, len(whole), piece) for out in cutter.receive(whole[at : at + piece])]
    assert _events(b"".join(pieces)) == _events(b"".join(frames))
    if one_by_one:
        assert len(pieces) == len(frames)
    assert cutter.receive(b"") == []
    assert cutter.buffered == 0


def _events(data: bytes, version: Version | None = None) -> Read:
    """The frames of a server; with a version those of a client."""
    decoder = Decoder(Limits(), SERVER_COMMANDS if version is None else CLIENT_COMMANDS)
    decoder.version = version or Version.V1_2
    decoder.receive(data)
    read: Read = []
    while events := decoder.next_events():
        read += [(head.command, head.fields, receipt, bytes(body)) for head, receipt, body in events]
    return read


@given(HEADERS, st.none() | st.text("abc\\1", min_size=1, max_size=5), BODIES, VERSIONS, st.integers(1, 3))
def test_a_clients_frame_is_passed_on_as_it_was(
    headers: list[tuple[str, str]], receipt: str | None, body: bytes, version: Version, times: int
) -> None:
    asked = [] if receipt is None else [("receipt", receipt)]
    fields = [("destination", "/queue/q"), *headers, *asked]
    frame = encode_frame(b"SEND", fields, body, version)
    decoder = Decoder(Limits())
    decoder.version = version
    for _ in range(times):  # a head that is known, or like one that is known, too
        decoder.receive(frame)
        ((head, raw, came),) = decoder.next_events()
        expected = [field for field in head.fields if field[0] != "content-length"]
        ((_, read, again, content),) = _events(passed_frame(head_lines(head, version), raw, came), version=version)
        assert [field for field in read if field[0] != "content-length"] == expected
        assert ("content-length" in dict(read)) == (head.content_length >= 0)
        assert (again, content) == (raw, body)
        lines = head_lines(head, version, {"destination": "/queue/x", "id": None})
        ((_, changed, _, _),) = _events(passed_frame(lines, raw, came), version=version)
        assert dict(changed)["destination"] == "/queue/x"
        assert "id" not in dict(changed)
