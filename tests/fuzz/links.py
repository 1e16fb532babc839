"""Fuzz links between processes: ``python -m tests.fuzz.links --seconds 60``; exits 1 on a finding.

The search is guided by coverage if atheris is installed, else driven by Hypothesis. ``check_decoder`` is what must hold
of the frames of any bytes, ``check_link`` what must hold of a link whose other side says anything.
"""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from quire.cluster.link import (
    FULL,
    HEAD,
    MAX_EARLY_PAYLOAD,
    MAX_PAYLOAD,
    WINDOW,
    Closing,
    EntryHandshake,
    Kind,
    Link,
    LinkDecoder,
    LinkFrame,
    Opening,
    OwnerHandshake,
    VirtualConnection,
    encode,
    encode_credit,
    encode_struct,
)
from quire.errors import QuireError
from tests.fuzz.fuzzing import Guided, main

EXAMPLES_A_SECOND = 150
OPENING = Opening("stomp", "alice", ["operator"], "127.0.0.1:5", "stomp")
_SECRET = b"secret"
_SIZES = (0, 1, 3, 4, 5, 100, MAX_EARLY_PAYLOAD, MAX_EARLY_PAYLOAD + 1, MAX_PAYLOAD, MAX_PAYLOAD + 1)


class Side:
    """One side of a link, of which the fuzzer is the other: its port, its watcher, the ends of its connections."""

    def __init__(self, *, is_owner: bool, acts: list[int], opens: int = 0) -> None:
        self.error: QuireError | None = None  # why the link is over; None while it is not
        self._acts = itertools.cycle(acts or [0])
        self._times_ended: dict[VirtualConnection, int] = {}
        if is_owner:
            self.link = Link(OwnerHandshake(_SECRET, 1, lambda: 1, bytes), self, self._watch)
        else:
            self.link = Link(EntryHandshake(_SECRET, 0, 1, 1, bytes), self)
        self.link.port = self
        self.own = [VirtualConnection(OPENING) for _ in range(opens)]
        for connection in self.own:
            self._watch(connection)
            self.link.open(connection)

    def wants_output(self) -> None:
        """It is taken when everything has come."""

    def close(self) -> None:
        """The link is over."""

    def link_ready(self, link: Link) -> None:
        """Both sides are known."""

    def link_ended(self, link: Link, error: QuireError) -> None:
        """The link is over."""
        assert self.error is None, "a link ends twice"
        self.error = error
        for _ in link.ends():
            pass

    def receive(self, data: bytes) -> None:
        self.link.receive(data)
        if self.error is None:
            assert self.link._decoder.buffered < HEAD.size + MAX_PAYLOAD, "a link keeps more than a frame"
        for connection in self.link.virtual.values():
            assert 0 <= connection.unread <= WINDOW, "more has come than the window"
            assert connection.waiting <= 2 * FULL, "more waits than was written"
        assert all(times <= 1 for times in self._times_ended.values()), "a virtual connection ends twice"

    def check_output(self) -> None:
        decoder = LinkDecoder()
        decoder.most = MAX_PAYLOAD
        for _ in range(100):
            decoder.receive(output := self.link.take_output())
            while decoder.frames():
                pass
            if not output:
                break
        assert not decoder.buffered, "a link says half a frame"

    def _watch(self, connection: VirtualConnection) -> None:
        self._times_ended[connection] = 0
        connection.end = _End(self, connection)

    def came(self, connection: VirtualConnection, size: int) -> None:
        act = next(self._acts) % 6
        if act == 1:
            connection.taken(connection.unread)
        elif act == 2 and not connection.is_full:
            connection.write(b"a" * (size * 7 % FULL))
        elif act == 3:
            connection.close()
        elif act == 4:
            connection.abort()
        elif act == 5:
            self.link.take_output()

    def ended(self, connection: VirtualConnection) -> None:
        assert connection.is_closed, "what has ended is not closed"
        assert not connection.waiting, "what has ended waits to be sent"
        self._times_ended[connection] += 1


class _End:
    def __init__(self, side: Side, connection: VirtualConnection) -> None:
        self._side = side
        self._connection = connection

    def data_came(self, data: bytes) -> None:
        self._side.came(self._connection, len(data))

    def room_again(self) -> None:
        assert not self._connection.is_closed, "what is closed is told that more is welcome"

    def ended(self, error: QuireError | None) -> None:
        self._side.ended(self._connection)


def frames_of(decoder: LinkDecoder, data: bytes) -> list[LinkFrame]:
    """The whole frames with some more bytes. A fault is left in the decoder's way and raised again."""
    decoder.receive(data)
    found: list[LinkFrame] = []
    while frames := decoder.frames():
        found += frames
    return found


def check_decoder(stream: bytes, sizes: list[int], most: int = MAX_PAYLOAD) -> None:
    """The frames of a stream do not depend on how it is cut, and are what was sent."""
    whole, pieces = LinkDecoder(), LinkDecoder()
    whole.most = pieces.most = most
    found: list[LinkFrame] = []
    faults: list[type[QuireError] | None] = [None, None]
    try:
        expected = frames_of(whole, stream)
    except QuireError as fault:
        faults[0], expected = type(fault), None
    position, cuts = 0, itertools.cycle(sizes or [1])
    try:
        while position < len(stream):
            size = max(next(cuts), 1)
            found += frames_of(pieces, stream[position : position + size])
            position += size
            assert pieces.buffered < HEAD.size + most, "more is kept than a frame"
    except QuireError as fault:
        faults[1] = type(fault)
    assert faults[0] is faults[1], "the fault depends on how the stream is cut"
    written = b"".join([encode(*frame) for frame in found])
    assert stream.startswith(written), "a frame changes on the way"
    if expected is not None:
        assert found == expected, "the frames depend on how the stream is cut"
        assert written + stream[len(written) :][: whole.buffered] == stream, "bytes are lost"


def check_link(stream: bytes, sizes: list[int], acts: list[int], *, is_owner: bool, is_known: bool) -> None:
    """Whatever comes, the link goes on or ends with an error, and what it holds is bounded."""
    side = Side(is_owner=is_owner, acts=acts, opens=0 if is_owner else 2)
    if is_known:
        _introduce(side, is_owner=is_owner)
    position, cuts = 0, itertools.cycle(sizes or [1])
    while position < len(stream) and side.error is None:
        size = max(next(cuts), 1)
        side.receive(stream[position : position + size])
        position += size
    side.check_output()
    if side.error is not None:
        assert not side.link.virtual, "a virtual connection outlives its link"
    side.link.lost(QuireError("the end"))
    assert all(connection.is_closed for connection in side.own), "a virtual connection was not told of the end"


def _introduce(side: Side, *, is_owner: bool) -> None:
    other = Side(is_owner=not is_owner, acts=[])
    for _ in range(3):
        for one, another in ((side, other), (other, side)):
            if output := one.link.take_output():
                another.link.receive(output)
    assert side.link.is_ready
    side.check_output()


def check_bytes(data: bytes) -> None:
    choice, *choices = data[:5].ljust(5, b"\0")
    sizes, acts = [size % 64 for size in choices[:2]], choices[2:]
    check_decoder(data[5:], sizes, MAX_PAYLOAD if choice & 4 else MAX_EARLY_PAYLOAD)
    check_link(data[5:], sizes, acts, is_owner=bool(choice & 1), is_known=bool(choice & 2))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    kind, id = draw(st.sampled_from(Kind)), draw(st.sampled_from([0, 1, 1, 2, 2, 3, 4, 2**32 - 1]))
    if draw(st.integers(0, 9)) == 0:
        return encode(kind, id, draw(st.binary(max_size=50)))
    if kind is Kind.CREDIT:
        return encode_credit(id, draw(st.sampled_from([0, 1, 100, WINDOW // 4, WINDOW, 2**32 - 1])))
    if kind is Kind.CLOSE:
        return encode_struct(kind, id, Closing(draw(st.sampled_from(["", "shard-moved", "?"])), "why"))
    if kind is Kind.OPEN:
        return encode_struct(kind, id, OPENING)
    return encode(kind, id, b"x" * draw(st.sampled_from(_SIZES)) if kind is Kind.DATA else b"")


octets = st.lists(st.integers(0, 255), max_size=8)


@given(st.lists(frames(), max_size=12), octets, octets, st.booleans(), st.booleans(), st.binary(max_size=60))
def search(sent: list[bytes], sizes: list[int], acts: list[int], is_owner: bool, is_known: bool, data: bytes) -> None:
    stream = b"".join(sent)
    sizes = [size * size for size in sizes] or [len(stream)]
    check_decoder(stream, sizes)
    check_link(stream, sizes, acts, is_owner=is_owner, is_known=is_known)
    check_bytes(data)


if __name__ == "__main__":
    said = [encode_struct(Kind.OPEN, 1, OPENING), encode(Kind.DATA, 1, b"x" * 20), encode_credit(1, 100)]
    said += [encode_struct(Kind.CLOSE, 1, Closing()), encode(Kind.BEAT)]
    corpus = [bytes([choice, 5, 40, 1, 2]) + b"".join(said) for choice in (2, 3, 6, 7)]
    main(search, EXAMPLES_A_SECOND, Guided(check_bytes, [LinkDecoder, Link, VirtualConnection], corpus))
