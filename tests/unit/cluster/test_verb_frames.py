"""The frames of verbs: what one side writes the other one reads, cut anywhere; what is no frame is refused at once."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address
from quire.broker.streams.groups.group import Held
from quire.broker.streams.partition import Start, StartKind
from quire.cluster import verb_frames as verbs
from quire.cluster.verb_frames import HEAD, MAX_BODY, MAX_FRAME, Kind, RelayedRetry, Run, VerbDecoder, VerbFrame
from quire.destination import DestinationKind
from quire.errors import (
    InvalidSelector,
    LimitExceeded,
    ProtocolViolation,
    QuireError,
    ShardMoved,
    TransactionRolledBack,
)
from quire.message import Message
from quire.selectors import Selector
from quire.sessions.base import (
    ACCEPTED,
    ConsumerKind,
    Membership,
    Opening,
    Settlement,
    SettlementKind,
    Step,
    SubscribeSpec,
)
from tests.fuzz.verbs import check_stream

contents = st.binary(max_size=40).map(lambda body: b"message-id:1\ntimestamp:2\n\n" + body)
sequences = st.integers(0, 2**64 - 1)


def the_frame(data: bytes) -> VerbFrame:
    """The one frame that some bytes are."""
    decoder = VerbDecoder()
    decoder.receive(data)
    (frame,) = decoder.frames()
    assert decoder.buffered == 0
    return frame


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Any run."""
    count = draw(st.integers(1, 12))
    run = Run(draw(st.none() | st.binary(max_size=20)), draw(st.text(max_size=10)))
    run.contents = draw(st.lists(contents, min_size=count, max_size=count))
    if draw(st.booleans()):
        run.expirations = draw(st.lists(sequences, min_size=count, max_size=count))
    if draw(st.booleans()):
        run.priorities = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    run.transient = draw(st.sets(st.integers(0, count - 1)))
    if run.producer:
        run.numbers = draw(st.lists(sequences, min_size=count, max_size=count))
    run.asked = sorted(draw(st.sets(st.integers(0, count - 1))))
    run.ask = draw(st.integers(1, 2**32 - 20)) if run.asked else 0
    return run


@pytest.mark.slow
@given(runs(), st.integers(0, 1023))
def test_a_run_of_messages_is_read_as_it_was_written(run: Run, route: int) -> None:
    frame = the_frame(b"".join(verbs.encode_run(route, run)))
    read = verbs.read_run(frame)
    assert frame.ref == route
    assert {name: getattr(read, name) for name in Run.__slots__} == {name: getattr(run, name) for name in Run.__slots__}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Any message that is delivered."""
    message = Message(draw(sequences), draw(contents))
    if draw(st.booleans()):
        message.expiration, message.priority = draw(sequences), draw(st.integers(0, 9))
        message.redelivered, message.deliveries = draw(st.booleans()), draw(st.integers(0, 5))
        message.failures = draw(st.integers(0, 5)) if message.deliveries else 0
        message.persistent = message.stored = draw(st.booleans())
    return message


def said(message: Message) -> tuple[object, ...]:
    """What a door may ask of a message."""
    return (
        message.sequence, message.content, message.size, message.expiration, message.priority, message.redelivered,
        message.deliveries, message.failures, message.persistent, message.stored,
    )  # fmt: skip


@pytest.mark.slow
@given(st.lists(messages(), min_size=1, max_size=8), st.booleans())
def test_messages_are_delivered_as_they_are(given_out: list[Message], first: bool) -> None:
    frame = the_frame(b"".join(verbs.encode_deliver(7, given_out, first=first)))
    read = verbs.read_deliver(frame)
    assert (frame.ref, bool(frame.flags & verbs.FIRST)) == (7, first)
    assert [said(message) for message in read] == [said(message) for message in given_out]


@pytest.mark.slow
@given(st.lists(messages(), min_size=1, max_size=4), st.integers(-1, 1000), sequences)
def test_retries_say_what_they_are_retries_of(given_out: list[Message], partition: int, offset: int) -> None:
    origins = [(partition, offset)] * len(given_out)
    read = verbs.read_deliver(the_frame(b"".join(verbs.encode_deliver(7, given_out, first=False, origins=origins))))
    assert [message.origin for message in read if isinstance(message, RelayedRetry)] == origins
    assert [said(message) for message in read] == [said(message) for message in given_out]


@pytest.mark.slow
@given(st.lists(sequences, min_size=1, max_size=20) | st.tuples(st.integers(0, 9), st.integers(1, 400)).map(
    lambda run: [*range(run[0], run[0] + run[1])]
))  # fmt: skip
def test_settled_messages_are_read_as_they_were_named(settled: list[int]) -> None:
    assert verbs.read_settle(the_frame(verbs.encode_settle(3, settled))) == (settled, None)
    how = Settlement(SettlementKind.REJECTED, 5, "why")
    details = verbs.Settle(how, b"ltx", 9, (None, 4, 6))
    assert verbs.read_settle(the_frame(verbs.encode_settle(3, settled, details))) == (settled, details)


def test_a_run_of_acknowledgements_is_a_few_bytes() -> None:
    assert len(verbs.encode_settle(3, [*range(10_000)])) == HEAD.size + 16


def test_more_than_may_be_settled_at_once_is_settled_by_several_frames_of_which_the_last_is_answered() -> None:
    settled = [*range(0, 2 * verbs.MOST_SETTLED, 2), 1]
    decoder = VerbDecoder()
    decoder.receive(verbs.encode_settle(3, settled, verbs.Settle(ACCEPTED, None, 9)))
    read = [verbs.read_settle(frame) for frame in decoder.frames()]
    assert [sequence for some, _ in read for sequence in some] == settled
    assert [details.ask for _, details in read if details is not None] == [0, 9]


@pytest.mark.slow
@given(st.lists(st.integers(1, 2**32 - 1), min_size=1))
def test_tokens_come_back_by_their_numbers(asks: list[int]) -> None:
    tokens = [token for ask in asks if (token := verbs.token_of(ask)) is not None]
    assert [verbs.ask_of(token) for token in tokens] == asks
    assert list(verbs.read_done(the_frame(verbs.encode_done(tokens)))) == asks
    assert (verbs.token_of(0), verbs.ask_of(None)) == (None, 0)


MEMBERSHIP = Membership(
    "g", "m", Start(StartKind.OFFSET, 4), consume_timeout=2.5, partitions=(0, 3), held=Held(False, {2: [(1, 5)]}),
)  # fmt: skip
SPECS = [
    SubscribeSpec("1", (Address(DestinationKind.QUEUE, "a"), Address(DestinationKind.TOPIC, "b.>"))),
    SubscribeSpec("2", (Address(DestinationKind.STREAM, "s"),), ConsumerKind.MEMBER, membership=MEMBERSHIP),
    SubscribeSpec(
        "3", (Address(DestinationKind.TOPIC, "t"),), ConsumerKind.DURABLE, AckMode.CLIENT, 7, priority=3, no_local=True,
        name="n", tracked=True, loss_counts=False,
    ),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_a_subscription_keeps_all_that_it_wants(spec: SubscribeSpec) -> None:
    frame = the_frame(verbs.encode_body(Kind.SUBSCRIBE, verbs.Subscribe(spec, 5), 2))
    assert verbs.read_body(frame, verbs.Subscribe) == verbs.Subscribe(spec, 5)


def test_a_selector_goes_as_its_text_and_is_read_again() -> None:
    spec = SubscribeSpec("1", SPECS[0].addresses, selector=Selector("a = 'b'"))
    frame = the_frame(verbs.encode_body(Kind.SUBSCRIBE, verbs.Subscribe(spec, 5), 2))
    selector = verbs.read_body(frame, verbs.Subscribe).spec.selector
    assert selector is not None
    assert selector.text == "a = 'b'"


def test_a_selector_that_cannot_be_read_is_told_as_such() -> None:
    frame = the_frame(verbs.encode_body(Kind.SUBSCRIBE, verbs.Subscribe(SPECS[0], 5), 2))
    wrong = frame._replace(payload=bytes(frame.payload).replace(b"selector\xc0", b"selector\xa2a="))
    with pytest.raises(InvalidSelector):
        verbs.read_body(wrong, verbs.Subscribe)


@pytest.mark.parametrize("body", [
    verbs.Open(Opening("STOMP 1.2", "me", takeover="ID:1"), 1),
    verbs.Route("/queue/a", True, (1, 2, 3, "* * * * *"), "k"),
    verbs.Unsubscribe(True, (3, 8), True, 4), verbs.Credit(5), verbs.Pull(2, 10, -1),
    verbs.Transact(b"x\0\xff", 3, Step.PREPARE), verbs.Transact(b"l", 3, None, "enlist 00"),
    verbs.Temporary("queue", "t", 3), verbs.Call("recover", ("a", 5, None), 3), verbs.Confirm(9),
    verbs.Leave("CLEAN", "why", 3), verbs.Result(4, ["done", b"x", 3]), verbs.Event("assigned", {"a": "b"}),
    verbs.PartAdded(1, False, "stream", "s", 3, 7), verbs.PullEnded(3, 1), verbs.BrowseEnded(0),
    verbs.Spoil(b"l", verbs.Failed(0, "store-full", "full", {"a": [1, "b"]})),
])  # fmt: skip
def test_small_verbs_are_read_as_they_were_written(body: msgspec.Struct) -> None:
    assert verbs.read_body(the_frame(verbs.encode_body(Kind.CALL, body, 4)), type(body)) == body


def test_an_error_is_of_its_class_again_with_what_the_doors_ask_of_it() -> None:
    error = TransactionRolledBack("no", transaction="t", cause="unknown-message", other=object())
    again = verbs.error_of(verbs.failed(4, error))
    assert type(again) is TransactionRolledBack
    assert (str(again), again.data) == ("no", {"transaction": "t", "cause": "unknown-message"})
    assert isinstance(verbs.error_of(verbs.Failed(0, "of-a-later-version", "x")), ShardMoved)


@pytest.mark.slow
@given(st.lists(runs(), max_size=3), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_how_a_stream_is_cut_does_not_matter(some: list[Run], sizes: list[int]) -> None:
    stream = b"".join([piece for run in some for piece in verbs.encode_run(1, run)])
    check_stream(stream + verbs.encode(Kind.PART_GONE, ref=3), sizes)


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    for kind, most in ((Kind.CALL, MAX_BODY), (Kind.ACCEPT, MAX_FRAME)):
        decoder = VerbDecoder()
        decoder.receive(HEAD.pack(most, kind, 0, 0, 0))
        assert decoder.frames() == []
        decoder = VerbDecoder()
        decoder.receive(HEAD.pack(most + 1, kind, 0, 0, 0))
        with pytest.raises(LimitExceeded):
            decoder.frames()


def test_a_large_frame_may_come_in_many_pieces() -> None:
    decoder, piece = VerbDecoder(), bytes(1000)
    decoder.receive(HEAD.pack(100_000, Kind.ACCEPT, 0, 0, 0))
    for _ in range(99):
        decoder.receive(piece)
        assert decoder.frames() == []
    decoder.receive(piece)
    assert [len(frame.payload) for frame in decoder.frames()] == [100_000]


ONE = VerbFrame(Kind.ACCEPT, 0, 1, 0, struct.pack(">I", 3) + b"abc")


@pytest.mark.parametrize("frame", [
    ONE._replace(items=65535), ONE._replace(payload=ONE.payload[:-1]), ONE._replace(payload=bytes(ONE.payload) + b"x"),
    ONE._replace(flags=verbs.TX), ONE._replace(flags=verbs.PRODUCER), ONE._replace(flags=verbs.ASKS),
    ONE._replace(payload=struct.pack(">I", 2**32 - 1)), ONE._replace(items=0),
    ONE._replace(flags=verbs.PRIORITY, payload=struct.pack(">IB", 3, 10) + b"abc"),
    ONE._replace(flags=verbs.ASKS, payload=struct.pack(">HIHI", 1, 1, 1, 3) + b"abc"),
])  # fmt: skip
def test_columns_that_do_not_fit_are_refused(frame: VerbFrame) -> None:
    assert verbs.read_run(ONE).contents == [b"abc"]
    with pytest.raises(ProtocolViolation):
        verbs.read_run(frame)


@pytest.mark.parametrize("payload", [
    struct.pack(">QQ", 0, verbs.MOST_SETTLED), struct.pack(">QQ", 5, 4), struct.pack(">QQ", 0, 2**64 - 1), b"", b"1234",
])  # fmt: skip
def test_a_range_of_messages_that_is_too_long_is_refused_before_it_is_written_out(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        verbs.read_settle(VerbFrame(Kind.SETTLE, verbs.RANGE, 0, 0, payload))


@pytest.mark.slow
@given(st.sampled_from([*Kind]), st.integers(0, 255), st.integers(0, 70_000), st.binary(max_size=60))
def test_what_is_no_verb_is_refused(kind: Kind, flags: int, items: int, payload: bytes) -> None:
    frame = VerbFrame(kind, flags, items, 0, payload)
    for read in (verbs.read_run, verbs.read_deliver, verbs.read_settle, verbs.read_done):
        try:
            read(frame)
        except QuireError as error:
            assert isinstance(error, ProtocolViolation)  # noqa: PT017
