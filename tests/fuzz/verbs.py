"""Fuzz the verbs between shards: ``python -m tests.fuzz.verbs --seconds 60``; exits 1 on a finding.

The search is guided by coverage if atheris is installed, else driven by Hypothesis. ``check_stream`` is what must hold
of any bytes: how they are cut does not matter, what is kept is bounded, and what is read can be written again.
"""

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quire.broker.routing.addresses import Address
from quire.cluster import verb_frames as verbs
from quire.cluster.verb_frames import HEAD, Kind, Run, VerbDecoder, VerbFrame
from quire.destination import DestinationKind
from quire.errors import QuireError
from quire.message import Message
from quire.sessions.base import ACCEPTED, Opening, Step, SubscribeSpec
from tests.fuzz.fuzzing import Guided, main

EXAMPLES_A_SECOND = 150

BODIES: dict[Kind, type] = {
    Kind.OPEN: verbs.Open, Kind.ROUTE: verbs.Route, Kind.SUBSCRIBE: verbs.Subscribe,
    Kind.UNSUBSCRIBE: verbs.Unsubscribe, Kind.CREDIT: verbs.Credit, Kind.PULL: verbs.Pull, Kind.TX: verbs.Transact,
    Kind.TEMPORARY: verbs.Temporary, Kind.CALL: verbs.Call, Kind.CONFIRM: verbs.Confirm, Kind.LEAVE: verbs.Leave,
    Kind.SPOIL: verbs.Spoil, Kind.RESULT: verbs.Result, Kind.FAILED: verbs.Failed, Kind.PART: verbs.PartAdded,
    Kind.PULL_ENDED: verbs.PullEnded, Kind.BROWSE_ENDED: verbs.BrowseEnded, Kind.EVENT: verbs.Event,
    Kind.CONSUMER_ENDED: verbs.Failed,
}  # fmt: skip
"""What the payload of a kind is, if it is one structure."""


def frames_of(decoder: VerbDecoder, data: bytes) -> list[VerbFrame]:
    decoder.receive(data)
    return decoder.frames()


def check_stream(stream: bytes, sizes: list[int]) -> None:
    """The frames of a stream do not depend on how it is cut, and what they say can be said again."""
    whole, pieces = VerbDecoder(), VerbDecoder()
    faults: list[type[QuireError] | None] = [None, None]
    expected: list[VerbFrame] | None = None
    try:
        expected = frames_of(whole, stream)
    except QuireError as fault:
        faults[0] = type(fault)
    found: list[VerbFrame] = []
    position, cuts = 0, itertools.cycle(sizes or [1])
    try:
        while position < len(stream):
            size = max(next(cuts), 1)
            found += frames_of(pieces, stream[position : position + size])
            position += size
    except QuireError as fault:
        faults[1] = type(fault)
    assert faults[0] is faults[1], "the fault depends on how the stream is cut"
    if expected is not None:
        assert found == expected, "the frames depend on how the stream is cut"
        assert pieces.buffered == whole.buffered, "bytes are lost"
    for frame in found:
        check_frame(frame)


def check_frame(frame: VerbFrame) -> None:
    """A frame is refused, or says what can be written and read again as the same."""
    try:
        said = _said(frame)
    except QuireError:
        return
    (again,) = frames_of(VerbDecoder(), _written(frame, said))
    assert repr(_said(again)) == repr(said), "what is written is read as something else"
    held = len(said.contents) if isinstance(said, Run) else len(said) if isinstance(said, list | tuple) else 0
    assert held <= max(verbs.MOST, verbs.MOST_SETTLED), "a frame is about more than it may be"


def _said(frame: VerbFrame) -> Any:
    readers: dict[Kind, Callable[[VerbFrame], Any]] = {
        Kind.ACCEPT: _run_of, Kind.DELIVER: _delivered_of, Kind.SETTLE: verbs.read_settle, Kind.DONE: verbs.read_done,
        Kind.PART_GONE: lambda frame: (frame.ref,),
    }  # fmt: skip
    reader = readers.get(frame.kind)
    return verbs.read_body(frame, BODIES[frame.kind]) if reader is None else reader(frame)


class _Run(Run):
    def __repr__(self) -> str:
        return str([getattr(self, name) for name in Run.__slots__])


def _run_of(frame: VerbFrame) -> Run:
    read, run = verbs.read_run(frame), _Run()
    for name in Run.__slots__:
        setattr(run, name, getattr(read, name))
    if not run.asked:
        run.ask = 0
    if not run.numbers:
        run.producer = ""
    return run


class _Delivered(list[Message]):
    def __repr__(self) -> str:
        names = ("sequence", "content", "expiration", "priority", "persistent", "redelivered", "deliveries", "failures")
        return str([[getattr(message, name) for name in names] for message in self])


def _delivered_of(frame: VerbFrame) -> _Delivered:
    return _Delivered(verbs.read_deliver(frame))


def _written(frame: VerbFrame, said: Any) -> bytes:
    if frame.kind is Kind.ACCEPT:
        return b"".join(verbs.encode_run(frame.ref, said))
    if frame.kind is Kind.DELIVER:
        return b"".join(verbs.encode_deliver(frame.ref, said, first=False))
    if frame.kind is Kind.SETTLE:
        return verbs.encode_settle(frame.ref, said[0], said[1])
    if frame.kind is Kind.DONE:
        return verbs.encode_done([HEAD.pack(ask, 0, 0, 0, 0)[:4] for ask in said]) or verbs.encode(Kind.DONE)
    if frame.kind is Kind.PART_GONE:
        return verbs.encode(Kind.PART_GONE, ref=said[0])
    return verbs.encode_body(frame.kind, said, frame.ref)


def check_bytes(data: bytes) -> None:
    sizes = [size % 64 for size in data[:2].ljust(2, b"\0")]
    check_stream(data[2:], sizes)


def examples() -> list[bytes]:
    run = Run(b"ltx", "producer")
    run.contents, run.numbers, run.asked, run.ask = [b"message-id:1\n\nabc"] * 3, [1, 2, 3], [0, 2], 7
    run.expirations, run.priorities, run.transient = [1, 2, 3], [4, 5, 6], {1}
    message = Message(7, b"message-id:1\n\nabc")
    again = Message(8, b"message-id:2\n\nabc", 5, 6, False)
    again.redelivered, again.deliveries, again.failures = True, 2, 1
    spec = SubscribeSpec("1", (Address(DestinationKind.QUEUE, "a"),))
    bodies = [
        (Kind.OPEN, verbs.Open(Opening("STOMP 1.2", "me"), 1)), (Kind.ROUTE, verbs.Route("/queue/a")),
        (Kind.SUBSCRIBE, verbs.Subscribe(spec, 3)), (Kind.PULL, verbs.Pull(1, 2, -1)),
        (Kind.TX, verbs.Transact(b"ltx", 2, Step.COMMIT)), (Kind.CALL, verbs.Call("recover", (1, "a"), 3)),
        (Kind.RESULT, verbs.Result(3, [b"x", "done"])), (Kind.FAILED, verbs.Failed(3, "store-full", "full")),
    ]  # fmt: skip
    return [
        b"".join(verbs.encode_run(3, run)), b"".join(verbs.encode_deliver(3, [message, message], first=True)),
        b"".join(verbs.encode_deliver(3, [again], first=False, origins=[(2, 5)])), verbs.encode_settle(3, [5, 6, 7, 8]),
        verbs.encode_settle(3, [5, 9], verbs.Settle(ACCEPTED, b"ltx", 4, (5, 2, None))),
        verbs.encode_done([b"\0\0\0\1", b"\0\0\0\2"]), verbs.encode(Kind.PART_GONE, ref=3),
        *[verbs.encode_body(kind, body, 3) for kind, body in bodies],
    ]  # fmt: skip


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame, mostly one that may come; some of its bytes may be others."""
    frame = bytearray(draw(st.sampled_from(examples())))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 5]))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):  # its length is as it says, or nothing would be read
        frame[:4] = (len(frame) - HEAD.size).to_bytes(4)
    return bytes(frame)


@given(st.lists(frames(), max_size=6), st.lists(st.integers(0, 255), max_size=8), st.binary(max_size=60))
def search(sent: list[bytes], sizes: list[int], data: bytes) -> None:
    check_stream(b"".join(sent), sizes)
    check_bytes(data)


if __name__ == "__main__":
    corpus = [bytes([5, 40]) + example for example in examples()]
    main(search, EXAMPLES_A_SECOND, Guided(check_bytes, [verbs], corpus))
