"""A client of another process, at the owner of a shard: a door that reads verbs and writes what it is told.

It is a door like any other. Its session is an ordinary one of this broker, so rules, limits and holds apply here as to
a client that is connected to this process. A send that is held lets settling and credit pass, since they make the room
that it waits for; all else of the client waits behind it, and with much waiting nothing more is read, so that the
client's window fills and its entry reads no more of it.

A client of another process, at the owner of a shard: a virtual connection in the place of a socket.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from quire.broker.admission import LimitedTarget
from quire.broker.broker import Broker
from quire.broker.routing.addresses import Address
from quire.broker.schedule import Timing
from quire.broker.streams.groups.group import RETRIES
from quire.cluster import verb_frames as verbs
from quire.cluster.cluster_map import ClusterMap, lost_to_another
from quire.cluster.link import WINDOW, VirtualConnection
from quire.cluster.verb_frames import Kind, Run, VerbDecoder, VerbFrame
from quire.destination import Destination, DestinationKind
from quire.errors import LimitExceeded, ProtocolViolation, QuireError, ShardMoved, UnknownMessage
from quire.message import Message
from quire.security import Access
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.connection import (
    CLOSE_LIMIT,
    OUTPUT_LIMIT,
    ClientTransport,
    ConnectedDoor,
    Connection,
    MakesSession,
    ProtocolDoors,
)
from quire.server.listener import Accepted
from quire.sessions.base import (
    ACCEPTED,
    USUAL,
    Consumer,
    Handle,
    Handles,
    Leaving,
    LeavingKind,
    MemberPart,
    Part,
    Route,
    Seen,
    Sending,
    These,
    Traits,
    UpTo,
    What,
)
from quire.sessions.rights import Gate, Guard
from quire.sessions.session import OF_THE_BROKER, LocalSession

MOST_WAITING = 64
"""With more verbs than this waiting behind one that is held, nothing more is read."""

PIECE = 64 * 1024
"""So many bytes of messages go in one frame, or one message."""

MOST_CONSUMERS = 20_000
"""So many consumers a client may have at one shard."""


class OwnerGuard(Guard):
    """The rules for one client, who may have only what this shard has.

    An entry may not know yet that a destination has moved: what it passes on then must not be stored here.
    """

    def __init__(self, gate: Gate, access: Access, cluster: ClusterMap) -> None:
        super().__init__(gate, access)
        self._cluster = cluster

    def check_send(self, addresses: Iterable[Address]) -> None:
        known = list(addresses)
        self._check_own(known)
        super().check_send(known)

    def check_subscribe(self, addresses: Iterable[Address]) -> None:
        known = list(addresses)
        self._check_own(known)
        super().check_subscribe(known)

    def check_create(self, address: Address) -> None:
        self._check_own([address])
        super().check_create(address)

    def lost_read(self, destination: Destination) -> QuireError | None:
        """Why a consumer must end that the client has: also if another shard has its destination now."""
        return super().lost_read(destination) or lost_to_another(self._cluster, destination)

    def _check_own(self, addresses: list[Address]) -> None:
        for kind, name, _ in addresses:
            if (error := lost_to_another(self._cluster, Destination(kind, name))) is not None:
                raise error


class _KnownRoute:
    """A route of the entry. Ours is None if the session has to be asked, again after each change of its version."""

    __slots__ = ("body", "route", "version")

    def __init__(self, body: verbs.Route) -> None:
        self.body = body
        self.route: Route | None = None
        self.version = -1


class VerbDoor(ConnectedDoor):
    protocol = "verbs"
    batch = 0
    session: LocalSession

    def __init__(
        self, broker: Broker, gate: Gate, connection: "VirtualClient", make_session: MakesSession, cluster: ClusterMap,
        shared: ShardTransactions, by_client_id: dict[str, "VerbDoor"],
    ) -> None:  # fmt: skip
        self._decoder = VerbDecoder()
        super().__init__(broker, gate, connection, self._decoder)
        self._client = connection
        self._make_session = make_session
        self._cluster = cluster
        self._shared = shared
        self._by_client_id = by_client_id
        self._is_stuck = False  # what waits is held, and not only put off
        self._has_sent = False
        self._run: Run | None = None  # the one that is held
        self._run_at = 0  # so many of its messages are taken
        self._routes: dict[int, _KnownRoute] = {}
        self._consumers: dict[int, Consumer] = {}
        self._numbers: dict[Consumer, int] = {}
        self._pulls: dict[Consumer, int] = {}
        self._coming = 0  # the number of the consumer that is subscribing
        self._handlers: dict[Kind, Callable[[VerbFrame], bool]] = {
            Kind.OPEN: self._open, Kind.ROUTE: self._add_route, Kind.ACCEPT: self._accept,
            Kind.SUBSCRIBE: self._subscribe, Kind.UNSUBSCRIBE: self._unsubscribe, Kind.CREDIT: self._credit,
            Kind.PULL: self._pull, Kind.SETTLE: self._settle, Kind.TX: self._transact, Kind.SPOIL: self._spoil,
            Kind.TEMPORARY: self._temporary, Kind.CALL: self._call, Kind.CONFIRM: self._confirm,
            Kind.LEAVE: self._leave,
        }  # fmt: skip

    def preauthenticate(self, access: Access) -> None:
        """The client has logged in elsewhere."""
        self.guard = OwnerGuard(self._gate, access, self._cluster)
        self.session = self._new_session()
        self.is_logged_in = True

    def _new_session(self) -> LocalSession:
        session = self._make_session(self.guard, self)
        assert isinstance(session, LocalSession)
        return session

    @property
    def sends_to(self) -> list[str]:
        return [known.body.destination for known in self._routes.values()]

    # Input.

    def _next_input(self) -> list[VerbFrame]:
        return self._decoder.frames()

    def _process(self, pieces: list[VerbFrame], end: float) -> None:
        session, clock = self.session, self._core.clock
        session.takes_input()
        try:
            for place, frame in enumerate(pieces):
                if not self._do(frame):
                    self._hold(pieces[place:])
                    return
                if self.is_closed:
                    return
                if clock.monotonic() > end and place + 1 < len(pieces):
                    self._put_off(pieces[place + 1 :])
                    return
        except QuireError as error:
            self.fail(error)
        finally:
            sent, self._has_sent = self._has_sent, False
            session.took_input(sent)

    def _do(self, frame: VerbFrame) -> bool:
        handler = self._handlers.get(frame.kind)
        if handler is None:
            raise ProtocolViolation(f"an entry says no {frame.kind.name}", command=frame.kind.name)
        return handler(frame)

    def _hold(self, pieces: list[VerbFrame]) -> None:
        self._waiting, self.held, self._is_stuck = pieces, True, True
        self._let_pass(0)

    def receive(self, data: bytes) -> None:
        """Take what came; while a verb waits, some others pass it."""
        if not self._is_stuck:
            super().receive(data)
            return
        self._decoder.receive(data)
        known = len(self._waiting)
        try:
            self._waiting += self._decoder.frames()
            self._let_pass(known)
        except QuireError as error:
            self.fail(error)

    def _let_pass(self, start: int) -> None:
        """Do those of the verbs that wait that make room; with many others waiting, read no more."""
        others = self._waiting[:start] or self._waiting[:1]
        for frame in self._waiting[len(others) :]:
            if self.is_closed:
                return
            if not (self._may_pass(frame) and self._do(frame)):
                others.append(frame)
        self._waiting = others
        if len(others) > MOST_WAITING:
            self._connection.pause_reading("held")

    def _may_pass(self, frame: VerbFrame) -> bool:
        if frame.kind is Kind.SETTLE:
            _, details = verbs.read_settle(frame)
            return details is None or details.tx is None
        return frame.kind in (Kind.CREDIT, Kind.PULL) and frame.ref in self._consumers

    def go_on(self) -> None:
        """Go on with the input that waited; the end of the connection, which came behind it, waited too."""
        self._is_stuck = False
        super().go_on()
        if not (self.held or self.is_closed):
            self._client.read_on()

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    # Sends.

    def _add_route(self, frame: VerbFrame) -> bool:
        if frame.ref >= verbs.ROUTES:
            raise ProtocolViolation(f"an entry has no route {frame.ref}", command="ROUTE")
        self._routes[frame.ref] = _KnownRoute(verbs.read_body(frame, verbs.Route))
        return True

    def _route(self, number: int) -> Route:
        """A route of the entry, asked again after each change of rules and places."""
        known = self._routes.get(number)
        if known is None:
            raise ProtocolViolation(f"an entry has no route {number}", command="ACCEPT")
        version = self.session.version
        if known.route is None or known.version != version:
            body = known.body
            timing = None if body.timing is None else Timing(*body.timing)
            traits = Traits(body.grouped, timing, body.partition_key, body.partition, body.by_content)
            known.route = self.session.route(body.destination, traits)
            known.version = version
        return known.route

    def _accept(self, frame: VerbFrame) -> bool:
        run, start = self._run, self._run_at
        self._run, self._run_at = None, 0
        if run is None:
            run = verbs.read_run(frame)
        self.session.takes_input()  # what the run before it has brought may be over a limit
        try:
            route = self._route(frame.ref)
        except ProtocolViolation:
            raise
        except QuireError as error:
            self._refuse_run(run, start, error)
            return True
        each = not route.is_plain or isinstance(route.target, LimitedTarget)  # one of them may be refused
        if start or run.tx is not None or run.numbers or each or self.session.restricted:
            return self._accept_each(run, start, route)
        self._send_plain(run, route)
        if run.asked:
            route.receipts += [verbs.token_of(run.ask + place) for place in range(len(run.asked))]
        return True

    def _send_plain(self, run: Run, route: Route) -> None:
        send, transient = route.target.send, run.transient
        if route.persistent is not None:
            transient = set() if route.persistent else set(range(len(run.contents)))
        if not (transient or run.expirations or run.priorities):
            for content in run.contents:
                send(content)
        else:
            count = len(run.contents)
            expirations, priorities = run.expirations or [0] * count, run.priorities or [4] * count
            for place, each in enumerate(zip(run.contents, expirations, priorities, strict=True)):
                send(*each, place not in transient)
        self._has_sent = self._has_sent or route.stored or len(transient) < len(run.contents)

    def _accept_each(self, run: Run, start: int, route: Route) -> bool:
        """Accept the messages of a run one by one; False if one has to wait."""
        asks = {place: run.ask + number for number, place in enumerate(run.asked)}
        for place in range(start, len(run.contents)):
            ask = asks.get(place, 0)
            how = USUAL
            if run.expirations or run.priorities or run.transient or run.numbers:
                how = Sending(
                    run.expirations[place] if run.expirations else 0, run.priorities[place] if run.priorities else 4,
                    place not in run.transient, run.producer, run.numbers[place] if run.numbers else 0,
                )  # fmt: skip
            try:
                taken = self.session.accept(route, run.contents[place], how, tx=run.tx, token=verbs.token_of(ask))
            except QuireError as error:
                self._refuse(ask, error)
                taken = True
            if not taken:
                self._run, self._run_at = run, place
                return False
        return True

    def _refuse_run(self, run: Run, start: int, error: QuireError) -> None:
        if run.tx is not None and len(run.asked) < len(run.contents):
            self.session.spoil(run.tx, error)
        asks = {place: run.ask + number for number, place in enumerate(run.asked)}
        for ask in dict.fromkeys([asks.get(place, 0) for place in range(start, len(run.contents))]):
            self._refuse(ask, error)

    # Consumers.

    def _subscribe(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Subscribe)
        if frame.ref in self._consumers:
            raise ProtocolViolation(f"an entry has a consumer {frame.ref} already", command="SUBSCRIBE")
        self._coming = frame.ref
        try:
            if len(self._consumers) >= MOST_CONSUMERS:
                raise LimitExceeded(f"{MOST_CONSUMERS} consumers are the limit of a connection", limit=MOST_CONSUMERS)
            consumer = self.session.subscribe(body.spec, verbs.token_of(body.ask))
        except QuireError as error:
            self._refuse(body.ask, error)
            return True
        self._consumers[frame.ref] = consumer
        self._numbers[consumer] = frame.ref
        return True

    def _unsubscribe(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Unsubscribe)
        consumer = self._consumers.get(frame.ref)
        token = verbs.token_of(body.ask)
        if consumer is None:  # it was ended
            self.session.confirm(token)
            return True
        seen = Seen(body.is_known)
        if body.last is not None:
            part = None if body.last[0] is None else self.session.parts.get(body.last[0])
            seen = Seen(True, body.last[1], part, body.is_alone)
        try:
            if not self.session.unsubscribe(consumer, seen, token):
                return False
        except QuireError as error:
            self._refuse(body.ask, error)
        self._forget(consumer)
        return True

    def _forget(self, consumer: Consumer) -> int:
        self._pulls.pop(consumer, None)
        number = self._numbers.pop(consumer, 0)
        self._consumers.pop(number, None)
        return number

    def _credit(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Credit)
        if (consumer := self._consumers.get(frame.ref)) is not None:
            self.session.credit(consumer, body.prefetch)
        return True

    def _pull(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Pull)
        if (consumer := self._consumers.get(frame.ref)) is not None:
            self._pulls[consumer] = body.pull
            try:
                self.session.pull(consumer, body.count, body.wait_ms)
            except QuireError as error:
                self._refuse(0, error)
        return True

    # Settling.

    def _settle(self, frame: VerbFrame) -> bool:
        sequences, details = verbs.read_settle(frame)
        if details is None:
            self._acknowledge(frame.ref, sequences)
            return True
        try:
            what = self._what(frame.ref, sequences, details)
            return self.session.settle(what, details.how, tx=details.tx, token=verbs.token_of(details.ask))
        except QuireError as error:
            if details.tx is not None and not details.ask:
                self.session.spoil(details.tx, error)
            self._refuse(details.ask, error)
            return True

    def _acknowledge(self, number: int, sequences: list[int]) -> None:
        """Messages are done; what is not in flight may have come back after a rollback."""
        part = self.session.parts.get(number)
        others = sequences if part is None else part.acknowledge(sequences)
        for sequence in others:
            try:
                if part is None:
                    raise UnknownMessage(f"message {sequence} is not in flight", sequence=sequence)
                self.session.settle(These(part, [sequence]), ACCEPTED)
            except QuireError as error:
                self._refuse(0, error)

    def _what(self, number: int, sequences: list[int], details: verbs.Settle) -> What:
        if details.handles is not None:
            consumer = self._consumers.get(number)
            if consumer is None:
                raise UnknownMessage("the consumer of this message has gone")
            return Handles(consumer, [Handle(*handle) for handle in details.handles])
        part = self.session.parts.get(number)
        if part is None or not sequences:
            raise UnknownMessage("the consumer of this message has gone")
        if details.up_to is None:
            return These(part, sequences)
        first, expected, first_part = details.up_to
        of_first = None if first_part is None else self.session.parts.get(first_part)
        return UpTo(part, first, sequences[-1], expected, of_first)

    # Transactions.

    def _transact(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Transact)
        token = verbs.token_of(body.ask)
        try:
            if body.text:
                return self._make_step(body)
            if body.step is None:
                return self.session.begin(body.tx, token)
            return self.session.end(body.tx, body.step, token)
        except QuireError as error:
            self._refuse(body.ask, error)
            return True

    def _make_step(self, body: verbs.Transact) -> bool:
        """Make a step of a transaction over several shards, once what it is about is found."""
        then = partial(self._done, verbs.token_of(body.ask))
        return self.session.spanning(body.tx, lambda part: self._shared.step(body.text, self.session, part, then))

    def _spoil(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Spoil)
        self.session.spoil(body.tx, verbs.error_of(body.error))
        return True

    # Other verbs.

    def _open(self, frame: VerbFrame) -> bool:
        """The client is there. Another connection of its client id that is here is lost, and has to go.

        Its entry may stand still. What it has comes back now, before this one is given later messages.
        """
        body = verbs.read_body(frame, verbs.Open)
        try:
            if not self.session.open(body.who, verbs.token_of(body.ask)):
                return False
        except QuireError as error:
            self._refuse(body.ask, error)
            return True
        if body.who.client_id and not body.who.is_made_up:
            older = self._by_client_id.get(body.who.client_id)
            self._by_client_id[body.who.client_id] = self
            if older is not None and not older.session.has_left:
                older.end(ShardMoved.code)
        return True

    def _temporary(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Temporary)
        try:
            self.session.temporary(DestinationKind(body.kind), body.name, verbs.token_of(body.ask))
        except ValueError:
            raise ProtocolViolation(f"{body.kind[:20]!r} is no kind of a destination", command="TEMPORARY") from None
        except QuireError as error:
            self._refuse(body.ask, error)
        return True

    def _call(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Call)
        try:
            return self.session.call(body.name, _arguments(body), verbs.token_of(body.ask))
        except QuireError as error:
            self._refuse(body.ask, error)
            return True

    def _confirm(self, frame: VerbFrame) -> bool:
        self.session.confirm(verbs.token_of(verbs.read_body(frame, verbs.Confirm).ask))
        return True

    def _leave(self, frame: VerbFrame) -> bool:
        body = verbs.read_body(frame, verbs.Leave)
        try:
            how = Leaving(LeavingKind[body.kind], body.cause)
        except KeyError:
            raise ProtocolViolation(f"{body.kind[:20]!r} is no end of a session", command="LEAVE") from None
        return self.session.leave(how, verbs.token_of(body.ask))

    # What its session tells, as ``Door``.

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        for some in _pieces(messages):
            origins: list[tuple[int, int]] = []
            if part.partition == RETRIES:
                origins = [origin_of(part, message) for message in some]
            for piece in verbs.encode_deliver(part.number, some, first=first, origins=origins):
                self.write(piece)

    def write(self, data: bytes) -> None:
        """Have something written at the end of the turn; with much of it nothing more is given."""
        super().write(data)
        if self._output_size > OUTPUT_LIMIT:
            self.writable = False

    def confirmed(self, tokens: list[bytes]) -> None:
        self.write(verbs.encode_done(tokens))

    def _done(self, token: bytes | None) -> None:
        if token is not None and not self.is_closed:
            self.confirmed([token])

    def answered(self, token: bytes, result: Any) -> None:
        self.write(verbs.encode_body(Kind.RESULT, verbs.Result(verbs.ask_of(token), result)))

    def failed(self, token: bytes | None, error: QuireError) -> None:
        self._refuse(verbs.ask_of(token), error)

    def _refuse(self, ask: int, error: QuireError) -> None:
        """Tell of an error; of a destination that is not here any more the client finds the new place by itself."""
        if isinstance(error, ShardMoved):
            raise error
        self.write(verbs.encode_body(Kind.FAILED, verbs.failed(ask, error)))

    def part_added(self, part: Part) -> None:
        number = self._numbers.get(part.consumer, self._coming)
        is_only = part.consumer.only_part is part
        kind, name = str(part.destination.kind), part.destination.name
        body = verbs.PartAdded(number, is_only, kind, name, part.partition, part.epoch)
        self.write(verbs.encode_body(Kind.PART, body, part.number))

    def part_gone(self, part: Part) -> None:
        self.write(verbs.encode(Kind.PART_GONE, ref=part.number))

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        body = verbs.PullEnded(self._pulls.get(consumer, 0), left)
        self.write(verbs.encode_body(Kind.PULL_ENDED, body, self._numbers[consumer]))

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        self.write(verbs.encode_body(Kind.BROWSE_ENDED, verbs.BrowseEnded(damaged), self._numbers[consumer]))

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        number = self._numbers.get(consumer, self._coming)
        self.write(verbs.encode_body(Kind.EVENT, verbs.Event(name, headers), number))

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        """The broker ends a consumer. What has moved is found by a client that connects again, and by no other."""
        if isinstance(error, ShardMoved):
            self.fail(error)
        elif number := self._forget(consumer):
            self.write(verbs.encode_body(Kind.CONSUMER_ENDED, verbs.failed(0, error), number))

    # Its end.

    def recheck(self) -> Iterator[None]:
        """Rules have changed, or places: what has moved ends the session."""
        try:
            yield from super().recheck()
        except ShardMoved as error:
            self.fail(error)

    def closed(self) -> None:
        super().closed()
        if self.client_id is not None and self._by_client_id.get(self.client_id) is self:
            del self._by_client_id[self.client_id]

    def fail(self, error: QuireError) -> None:
        if not self.is_closed:
            self.is_blameless = self.is_blameless or error.code in OF_THE_BROKER
            self.flush()
            self._client.close_by(error)
            self.closed()


def _pieces(messages: list[Message]) -> Iterator[list[Message]]:
    """Messages in pieces, each for one frame: of what is not whole, the entry cannot say that it takes no more."""
    if len(messages) <= verbs.MOST and sum([len(message.content) for message in messages]) <= PIECE:
        yield messages
        return
    some: list[Message] = []
    size = 0
    for message in messages:
        if some and (len(some) == verbs.MOST or size + len(message.content) > PIECE):
            yield some
            some, size = [], 0
        some.append(message)
        size += len(message.content)
    yield some


class VerbDoors(ProtocolDoors):
    name = "verbs"
    patience = 0.0

    def __init__(
        self, broker: Broker, gate: Gate, make_session: MakesSession, cluster: ClusterMap, shared: ShardTransactions
    ) -> None:
        super().__init__(broker, gate, make_session, cluster)
        self.max_connections = 1 << 30
        self._make = partial(VerbDoor, broker, gate)
        self._given = make_session, cluster, shared, dict[str, VerbDoor]()

    def session(self, connection: Connection) -> VerbDoor:
        assert isinstance(connection, VirtualClient)
        return self._make(connection, *self._given)

    def refusal(self, error: QuireError) -> bytes:
        return b""


_ARGUMENTS: dict[str, Any] = {
    "create": tuple[Address], "delete": tuple[list[Address]], "drop-temporary": tuple[Address],
    "producer": tuple[str, Address, bool],
}  # fmt: skip
"""What the services are given that are given more than texts."""


def _arguments(call: verbs.Call) -> tuple[Any, ...]:
    kind = _ARGUMENTS.get(call.name)
    try:
        return call.arguments if kind is None else msgspec.convert(call.arguments, kind)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(f"the call {call.name} cannot be read: {error}", command="CALL") from None


def origin_of(part: Part, message: Message) -> tuple[int, int]:
    member: MemberPart = part  # type: ignore[assignment]
    return member.origin(message)


JOINED = WINDOW // 2
"""Of what has come and waits, so many bytes are handed on at once: each time the session has its time of a turn."""


class VirtualClient(ClientTransport):
    """A client of another process: a virtual connection in the place of a socket. It is counted at its entry.

    What comes while it is not read waits here, within the window.
    """

    def __init__(
        self, broker: Broker, doors: VerbDoors, connections: dict[ClientTransport, ConnectedDoor], accepted: Accepted,
        connection: VirtualConnection, access: Access,
    ) -> None:  # fmt: skip
        super().__init__(broker, doors, connections, accepted)
        self.peer = connection.opening.peer
        self._connection = connection
        self._pieces: deque[bytes] = deque()  # came, and are not read yet
        self._size = 0  # of them together
        self._is_delivering = self._is_lost = self._is_ended = False
        self._error: QuireError | None = None
        connection.end = self
        doors.open.add(self)
        doors.opened += 1
        door = self._door = self._session = connections[self] = doors.session(self)
        door.preauthenticate(access)

    # The virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        self.read_on()

    def room_again(self) -> None:
        if not self.is_writable:
            self.resume_writing()

    def ended(self, error: QuireError | None) -> None:
        """The entry has closed it, or the link is lost; what was said before is read all the same, if it is read."""
        self._is_ended, self._error = True, error
        if error is not None or not self.is_writable:  # output that never leaves would hold the input up for ever
            self._forget()
        self.read_on()

    # The door calls these.

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._connection.write(data)
            if self._connection.is_full and self.is_writable:
                self.pause_writing()

    def close(self) -> None:
        if not self._closing:
            self.close_by(None)
            self._core.scheduler.call_later(CLOSE_LIMIT, self.abort)

    def close_by(self, error: QuireError | None) -> None:
        """Close it when what was written is sent; the entry is told the error."""
        self._closing = True
        self._connection.close(error)
        self._forget()
        self._lose()

    def abort(self) -> None:
        self._connection.abort()
        self._forget()
        self._lose()

    def pause_reading(self, reason: str) -> None:
        self._not_reading.add(reason)

    def resume_reading(self, reason: str) -> None:
        self._not_reading.discard(reason)
        if not self._not_reading and not self._closing:
            self.read_on()

    @property
    def unread(self) -> int:
        return self._size if self._not_reading else 0

    @property
    def unsent(self) -> int:
        return self._connection.waiting

    @property
    def has_ended(self) -> bool | None:
        """None if the entry has not told so: it may not have seen it."""
        return self._is_ended or None

    def read_on(self) -> None:
        """Read what has come. If the entry has closed it and what was read is done, it is over."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._pieces and (self._closing or not self._not_reading):
                data = self._next()
                self._size -= len(data)
                self.data_received(data)
                self._connection.taken(len(data))
        finally:
            self._is_delivering = False
        if self._is_ended and not self._pieces and (self._error is not None or not self._door.has_waiting):
            self._lose()

    def _next(self) -> bytes:
        """The next piece that is handed on: many small ones at once."""
        first = self._pieces.popleft()
        if not self._pieces:
            return first
        pieces, size = [first], len(first)
        while self._pieces and size + len(self._pieces[0]) <= JOINED:
            pieces.append(piece := self._pieces.popleft())
            size += len(piece)
        return b"".join(pieces)

    def _forget(self) -> None:
        for data in self._pieces:
            self._connection.taken(len(data))
        self._pieces.clear()
        self._size = 0

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self.connection_lost(self._error)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone; with an error the link is lost, and the client has done nothing."""
        self._door.is_blameless = self._door.is_blameless or error is not None
        super().connection_lost(error)
