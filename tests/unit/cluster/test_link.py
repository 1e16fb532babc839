"""Links: what two processes say to each other, cut anywhere, and what an unknown or faulty one can do."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cluster.link import (
    FULL,
    HEAD,
    MAX_EARLY_PAYLOAD,
    MAX_VIRTUAL,
    SILENCE,
    WINDOW,
    EntryHandshake,
    Kind,
    Link,
    LinkDecoder,
    Opening,
    OwnerHandshake,
    VirtualConnection,
    encode,
    encode_credit,
)
from quire.errors import AccessRefused, LimitExceeded, ProtocolViolation, QuireError, ShardMoved

SECRET = b"secret"
OPENING = Opening("stomp", "alice", ["operator"], "127.0.0.1:5", "stomp")


class Port:
    """Carries the bytes of one side when it is told to."""

    def __init__(self) -> None:
        self.wants = True
        self.is_closing = False

    def wants_output(self) -> None:
        """There is output to take."""
        self.wants = True

    def close(self) -> None:
        """The link is over."""
        self.wants = self.is_closing = True


class Watcher:
    """Keeps what a link says of itself."""

    def __init__(self) -> None:
        self.ready = 0
        self.errors: list[QuireError] = []

    def link_ready(self, link: Link) -> None:
        """Both sides are known."""
        self.ready += 1

    def link_ended(self, link: Link, error: QuireError) -> None:
        """The link is over."""
        self.errors.append(error)
        for _ in link.ends():
            pass


class End:
    """Keeps what comes; it takes what it is told to."""

    def __init__(self, connection: VirtualConnection | None = None) -> None:
        self.data = bytearray()
        self.times_drained = 0
        self.ends: list[QuireError | None] = []
        self.connection = connection

    def data_came(self, data: bytes) -> None:
        """Bytes have come."""
        self.data += data

    def room_again(self) -> None:
        """More is welcome."""
        self.times_drained += 1

    def ended(self, error: QuireError | None) -> None:
        """It is over."""
        self.ends.append(error)


class Pair:
    """Two joined links: of an entry, and of an owner.

    Attributes:
        accepted: the virtual connections that the owner was told of, each with what came.
    """

    def __init__(self, secret: bytes = SECRET, epoch: int = 1, owner_epoch: int = 1, piece: int = 1 << 20) -> None:
        self.piece = piece
        self.watchers = Watcher(), Watcher()
        self.accepted: list[tuple[VirtualConnection, End]] = []
        self.refuses: Callable[[], None] = lambda: None
        nonce = bytes
        self.entry = Link(EntryHandshake(secret, 0, 1, epoch, nonce), self.watchers[0])
        self.owner = Link(OwnerHandshake(SECRET, 1, lambda: owner_epoch, nonce), self.watchers[1], self._accept)
        self.ports = Port(), Port()
        self.entry.port, self.owner.port = self.ports

    def _accept(self, connection: VirtualConnection) -> None:
        self.refuses()
        connection.end = end = End(connection)
        self.accepted.append((connection, end))

    def open(self) -> tuple[VirtualConnection, End]:
        """A virtual connection of the entry, with what comes back."""
        connection = VirtualConnection(OPENING)
        connection.end = end = End(connection)
        self.entry.open(connection)
        return connection, end

    def run(self) -> None:
        """Carry bytes until there are none."""
        sides = (self.ports[0], self.entry, self.owner), (self.ports[1], self.owner, self.entry)
        while any([port.wants for port in self.ports]):
            for port, link, other in sides:
                if port.wants:
                    port.wants = False
                    data = link.take_output()
                    for start in range(0, len(data), self.piece):
                        other.receive(data[start : start + self.piece])


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_both_sides_learn_who_the_other_one_is(piece: int) -> None:
    pair = Pair(piece=piece)
    connection, end = pair.open()
    connection.write(b"hello")
    pair.run()
    assert pair.entry.is_ready
    assert pair.owner.is_ready
    ((accepted, heard),) = pair.accepted
    assert accepted.opening == OPENING
    assert heard.data == b"hello"
    accepted.write(b"answer")
    accepted.close()
    pair.run()
    assert end.data == b"answer"
    assert end.ends == [None]
    assert pair.entry.virtual == pair.owner.virtual == {}


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"secret": b"guessed"}, "not-authenticated"), ({"epoch": 2}, "shard-moved"), ({"owner_epoch": 2}, "shard-moved")],
)
def test_a_link_to_another_owner_or_of_another_cluster_is_refused(changes: dict[str, object], code: str) -> None:
    pair = Pair(**changes)  # type: ignore[arg-type]
    connection, end = pair.open()
    connection.write(b"hello")
    pair.run()
    assert [error.code for error in pair.watchers[0].errors] == [code]
    assert pair.accepted == []
    assert not pair.owner.is_ready
    assert isinstance(end.ends[0], ShardMoved)


def test_another_certificate_than_the_owners_is_refused() -> None:
    pair = Pair()
    pair.entry.handshake.binding, pair.owner.handshake.binding = b"seen", b"own"
    pair.run()
    assert [error.code for error in pair.watchers[0].errors] == ["not-authenticated"]


def test_a_proof_is_of_no_use_for_the_other_role() -> None:
    """A process without the secret cannot have the owner make the proof that it needs."""
    owner = OwnerHandshake(SECRET, 1, lambda: 1)
    thief = EntryHandshake(b"", 0, 1, 1)
    decoder = LinkDecoder()
    decoder.receive(thief.begin())
    decoder.receive(owner.take(*decoder.frames()))
    (challenge,) = decoder.frames()
    with pytest.raises(ProtocolViolation):
        owner.take(challenge)
    with pytest.raises(QuireError) as refused:
        owner.take(challenge._replace(kind=Kind.PROOF, payload=challenge.payload[-32:]))
    assert refused.value.code == "not-authenticated"


def test_what_is_not_taken_gets_no_more_than_the_window() -> None:
    pair = Pair()
    slow, _ = pair.open()
    fast, _ = pair.open()
    slow.write(b"s" * (WINDOW + FULL + 1))
    fast.write(b"f")
    pair.run()
    (at_owner, heard), (_, heard_fast) = pair.accepted
    assert len(heard.data) == WINDOW
    assert heard_fast.data == b"f"
    assert slow.is_full
    at_owner.taken(WINDOW)
    pair.run()
    assert slow.waiting == 1 + FULL - WINDOW
    assert not slow.is_full


def test_what_was_under_way_when_it_was_closed_makes_room_once() -> None:
    pair = Pair()
    client, _ = pair.open()
    client.write(b"c" * WINDOW)
    pair.run()
    ((at_owner, _),) = pair.accepted
    at_owner.close()
    at_owner.taken(WINDOW)  # whoever had it in hand says so afterwards
    assert at_owner.unread == 0


def test_large_writes_of_two_take_turns() -> None:
    pair = Pair()
    first, _ = pair.open()
    second, _ = pair.open()
    pair.run()
    first.write(b"1" * WINDOW)
    second.write(b"2" * WINDOW)
    data = pair.entry.take_output()
    assert data.index(b"2" * 1000) < data.rindex(b"1" * 1000)


def test_a_refused_opening_ends_with_its_error() -> None:
    pair = Pair()

    def refuse() -> None:
        raise AccessRefused("no")

    pair.refuses = refuse
    connection, end = pair.open()
    connection.write(b"hello")
    pair.run()
    assert [error and error.code for error in end.ends] == ["access-refused"]
    assert pair.entry.virtual == pair.owner.virtual == {}


def test_closing_from_both_sides_at_once_leaves_nothing() -> None:
    pair = Pair()
    connection, end = pair.open()
    pair.run()
    ((accepted, heard),) = pair.accepted
    connection.write(b"last")
    connection.close()
    accepted.write(b"words")
    accepted.close()
    pair.run()
    assert pair.entry.virtual == pair.owner.virtual == {}
    assert end.ends == heard.ends == []  # each had closed it


def test_an_abort_drops_what_waits() -> None:
    pair = Pair()
    connection, _ = pair.open()
    connection.write(b"x" * 3 * WINDOW)
    pair.run()
    connection.abort()
    pair.run()
    ((_, heard),) = pair.accepted
    assert len(heard.data) == WINDOW
    assert heard.ends == [None]
    assert connection.waiting == 0


def test_silence_ends_a_link_and_beats_keep_it() -> None:
    pair = Pair()
    connection, end = pair.open()
    pair.run()
    for _ in range(SILENCE * 3):
        pair.entry.tick()
        pair.owner.tick()
        pair.run()
    assert end.ends == []
    for _ in range(SILENCE + 1):
        pair.entry.tick()
    assert [type(error) for error in end.ends] == [ShardMoved]
    assert connection.is_closed


def test_a_link_that_was_never_ready_gives_its_connections_back() -> None:
    pair = Pair(epoch=2)
    connection, end = pair.open()
    assert pair.entry.release() == [connection]
    pair.run()
    assert end.ends == []
    again = Pair()
    again.entry.open(connection)
    connection.write(b"hello")
    again.run()
    assert again.accepted[0][1].data == b"hello"


@pytest.mark.parametrize(
    "frame",
    [
        encode(Kind.DATA, 1, b"x" * 10) * (WINDOW // 10 + 1),
        encode_credit(1, 1),
        encode(Kind.CREDIT, 1, b"123"),
        encode(Kind.DATA, 7, b"x"),
        encode(Kind.DATA, 0, b"x"),
        encode(Kind.OPEN, 1, b""),
        encode(Kind.OPEN, 2, b"no message pack"),
        encode(Kind.CLOSE, 1, b"\xff"),
        encode(Kind.HELLO, 0, b""),
        HEAD.pack(77, 0, 0),
        HEAD.pack(Kind.DATA, 1, 1 << 30),
    ],
    ids=["too much", "too much credit", "no credit", "unknown", "of the link", "twice", "no opening", "no closing",
         "too late", "no kind", "too large"],
)  # fmt: skip
def test_a_fault_of_a_process_ends_its_link_alone(frame: bytes) -> None:
    pair = Pair()
    pair.open()
    pair.run()
    ((_, heard),) = pair.accepted
    pair.owner.receive(frame)
    assert len(pair.watchers[1].errors) == 1
    assert isinstance(pair.watchers[1].errors[0], ProtocolViolation | LimitExceeded)
    assert len(heard.ends) == 1
    pair.owner.receive(b"anything")
    assert len(pair.watchers[1].errors) == 1


def test_before_it_is_known_a_process_can_have_little_kept() -> None:
    link = Pair().owner
    link.receive(HEAD.pack(Kind.HELLO, 0, MAX_EARLY_PAYLOAD) + b"x" * (MAX_EARLY_PAYLOAD - 1))
    before = link.is_over
    link.receive(HEAD.pack(Kind.HELLO, 0, MAX_EARLY_PAYLOAD))
    assert (before, link.is_over) == (False, True)
    other = Pair().owner
    other.receive(HEAD.pack(Kind.HELLO, 0, MAX_EARLY_PAYLOAD + 1))
    assert isinstance(other.error, LimitExceeded)


def test_a_link_carries_a_bounded_number_of_virtual_connections() -> None:
    pair = Pair()
    pair.entry.virtual = dict.fromkeys(range(-MAX_VIRTUAL, 0), VirtualConnection(OPENING))
    with pytest.raises(LimitExceeded):
        pair.open()


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_end_in_an_error_or_wait_for_more(data: bytes, is_ready: bool) -> None:
    pair = Pair()
    if is_ready:
        pair.open()
        pair.run()
    pair.owner.receive(data)
    pair.owner.take_output()


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "write", "answer", "take", "give", "close", "end", "abort", "run"]),
        st.integers(0, 5),
        st.integers(0, 2 * WINDOW),
    ),
    max_size=25,
)


def _at_entry(action: str, connection: VirtualConnection, size: int, sent: bytearray) -> None:
    """What the entry does with a virtual connection."""
    if action == "write" and not connection.is_closed:
        data = bytes([65 + size % 26]) * size
        sent += data
        connection.write(data)
    elif action == "give":
        connection.taken(connection.unread)
    elif action == "close":
        connection.close()
    elif action == "abort":
        connection.abort()


def _at_owner(action: str, connection: VirtualConnection, size: int) -> None:
    """What the owner does with it."""
    if action == "answer":
        connection.write(b"a" * size)
    elif action == "take":
        connection.taken(connection.unread)
    elif action == "end":
        connection.close()


@given(_ACTIONS, st.sampled_from([97, 1 << 20]))
def test_what_is_written_comes_in_order_whatever_happens_between(
    actions: list[tuple[str, int, int]], piece: int
) -> None:
    pair = Pair(piece=piece)
    opened: list[VirtualConnection] = []
    sent: list[bytearray] = []
    for action, which, size in actions:
        if action == "open":
            opened.append(pair.open()[0])
            sent.append(bytearray())
        elif action == "run":
            pair.run()
        else:
            if which < len(opened):
                _at_entry(action, opened[which], size, sent[which])
            if which < len(pair.accepted):
                _at_owner(action, pair.accepted[which][0], size)
    pair.run()
    assert pair.watchers[0].errors == pair.watchers[1].errors == []
    for expected, (connection, heard) in zip(sent, pair.accepted, strict=True):
        assert expected.startswith(bytes(heard.data))
        assert connection.unread <= WINDOW
    both = [*opened, *[connection for connection, _ in pair.accepted]]
    for _ in range(20):
        for connection in both:
            connection.taken(connection.unread)
        pair.run()
    assert [connection.waiting for connection in both] == [0] * len(both)
