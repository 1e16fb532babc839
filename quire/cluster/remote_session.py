"""A client's session at another shard, as its entry has it: verbs become frames, and frames what a door is told.

Of a message that goes or comes nothing stays here but what is written. Sends to one route that follow each other are a
run, which is closed by any other verb and at the end of the chunk of input that they came in. So a run costs its owner
little more than one message, and the verbs of a client take effect at its shard in their order.
"""

from collections.abc import Callable, Iterator
from typing import Any

from quire.broker.core.subscription import Subscription
from quire.broker.routing.addresses import Address, Scope
from quire.cluster import verb_frames as verbs
from quire.cluster.link import VirtualConnection
from quire.cluster.verb_frames import Kind, RelayedRetry, Run, VerbDecoder, VerbFrame
from quire.destination import Destination, DestinationKind
from quire.errors import LimitExceeded, ProtocolViolation, QuireError, ShardMoved, UnknownMessage
from quire.message import Message
from quire.sessions.base import (
    ACCEPTED,
    PLAIN,
    UNKNOWN,
    USUAL,
    Consumer,
    ConsumerKind,
    Door,
    Handles,
    Leaving,
    LeavingKind,
    Opening,
    Part,
    Route,
    Seen,
    Sending,
    Settlement,
    SettlementKind,
    Step,
    SubscribeSpec,
    These,
    Token,
    Traits,
    Tx,
    UpTo,
    What,
)

RUN_BYTES = 64 * 1024
"""A run of messages with more bytes than this is closed: its owner begins with it."""

MOST_ASKED = 10_000
"""So many verbs of a client may wait for the answer of one shard."""

LEFT = ShardMoved("the entry has ended the client's connection, which the client has not caused")
"""Tells a shard that a client is gone and has done nothing."""


Gone = Callable[["RemoteSession", QuireError, list[Token]], None]


class RemoteTarget:
    __slots__ = ("body", "number", "session")

    def __init__(self, session: "RemoteSession", body: verbs.Route) -> None:
        self.session = session
        self.body = body
        self.number = -1  # none yet

    def send(
        self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True, tx: Tx | None = None,
        producer: str = "", number: int = 0,
    ) -> None:  # fmt: skip
        session = self.session
        run = session.run
        if session.run_target is not self or run.tx != tx or run.producer != producer or session.run_size > RUN_BYTES:
            run = session.begin_run(self, tx, producer)
        run.contents.append(content)
        session.run_size += len(content)
        if expiration or run.expirations:
            _column(run.expirations, run, 0).append(expiration)
        if priority != 4 or run.priorities:
            _column(run.priorities, run, 4).append(priority)
        if not persistent:
            run.transient.add(len(run.contents) - 1)
        if producer:
            run.numbers.append(number)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """As ``send``: what is given up elsewhere is another shard's, and not in this commit."""
        self.send(content, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """The route says it."""


def _column(column: list[int], run: Run, usual: int) -> list[int]:
    """A column of a run, which has the usual value for each message that came before the last one."""
    if len(column) < len(run.contents) - 1:
        column += [usual] * (len(run.contents) - 1 - len(column))
    return column


class Receipts(list[Token]):
    """The tokens of a run; it is noted which message each is of."""

    def __init__(self, session: "RemoteSession") -> None:
        super().__init__()
        self.places: list[int] = []  # the message of each token that came after the one before it
        self._session = session

    def append(self, token: Token) -> None:
        super().append(token)
        self.places.append(len(self._session.run.contents) - 1)


class RemotePart:
    """A part of a consumer that another shard has."""

    __slots__ = (
        "at_owner", "consumer", "destination", "epoch", "in_flight", "number", "partition", "session", "writer",
    )  # fmt: skip

    def __init__(
        self, session: "RemoteSession", number: int, at_owner: int, consumer: "RemoteConsumer",
        destination: Destination, partition: int | None, epoch: int,
    ) -> None:  # fmt: skip
        self.session = session
        self.number = number
        self.at_owner = at_owner  # its number there
        self.consumer = consumer
        self.destination = destination
        self.partition = partition
        self.epoch = epoch
        self.in_flight: dict[int, Message] = {}
        self.writer: Any = None

    def origin(self, message: Message) -> tuple[int, int]:
        """The partition and the offset of a message, of the origin of a retry."""
        if isinstance(message, RelayedRetry):
            return message.origin
        return self.partition or 0, message.sequence

    def acknowledge(self, sequences: list[int]) -> list[int]:
        """Settle a run of messages as done; what is not in flight its owner tells later."""
        self.session.settle_part(self, sequences)
        return []


class RemoteConsumer:
    """A consumer at another shard."""

    __slots__ = ("number", "only_part", "parts", "pulls", "session", "spec")

    def __init__(self, session: "RemoteSession", spec: SubscribeSpec, number: int) -> None:
        self.session = session  # at that shard
        self.spec = spec
        self.number = number  # names it at its owner
        self.parts: list[RemotePart] = []
        self.only_part: RemotePart | None = None
        self.pulls = 0  # how often it has pulled


class _Asked:
    """Stands for a token: for those of one message that has several, for a SUBSCRIBE's, for one that is awaited."""

    __slots__ = ("awaited", "consumer", "tokens")

    def __init__(self, tokens: list[Token], consumer: RemoteConsumer | None = None, awaited: bool = False) -> None:
        self.tokens = tokens
        self.consumer = consumer
        self.awaited = awaited


class RemoteSession:
    """A client's session at another shard."""

    connection: VirtualConnection  # to the owner; set before anything is said

    def __init__(
        self, door: Door, shard: int, numbers: Iterator[int], charge: Callable[[int], bool], gone: Gone, user: str = ""
    ) -> None:
        self.name = door.name
        self.user = user
        self.client_id: str | None = None
        self.shard = shard  # its number
        self.parts: dict[int, Part] = {}
        self.run = Run()  # the messages that are gathered
        self.run_target: RemoteTarget | None = None  # where they go; None while there are none
        self.run_size = 0  # how many bytes they have
        self.awaits = 0  # how many temporary destinations it has to make before anything else is said
        self.is_over = False  # whether the virtual connection has ended
        self._door = door  # is told what the shard tells
        self._numbers = numbers  # gives parts their numbers, which are unique among all shards of the client
        self._charge = charge  # counts what has come of frames that are not whole; whether that is more than it may be
        self._gone = gone  # is told of its end, with the tokens that have not come back
        self._charged = 0
        self._receipts = Receipts(self)
        self._targets: list[RemoteTarget | None] = [None] * verbs.ROUTES
        self._next_route = self._last_ask = self._last_consumer = 0
        self._asked: dict[int, Any] = {}  # tokens of those who wait, by number
        self._consumers: dict[int, RemoteConsumer] = {}
        self._by_owner: dict[int, RemotePart] = {}
        self._in_transactions: dict[Tx, list[tuple[RemotePart, list[int]]]] = {}
        self._decoder = VerbDecoder()
        self._writable = True
        self._owed = 0
        self._has_left = False
        self._handlers: dict[Kind, Callable[[VerbFrame], None]] = {
            Kind.DELIVER: self._delivered, Kind.DONE: self._done, Kind.RESULT: self._result, Kind.FAILED: self._failed,
            Kind.PART: self._part_added, Kind.PART_GONE: self._part_gone, Kind.PULL_ENDED: self._pull_ended,
            Kind.BROWSE_ENDED: self._browse_ended, Kind.EVENT: self._event,
            Kind.CONSUMER_ENDED: self._consumer_ended,
        }  # fmt: skip

    # What its door asks.

    @property
    def writable(self) -> bool:
        """Whether the door takes deliveries now. Its owner sends no more than the window then."""
        return self._writable

    @writable.setter
    def writable(self, writable: bool) -> None:
        self._writable = writable
        if writable and self._owed:
            owed, self._owed = self._owed, 0
            self.connection.taken(owed)

    @property
    def version(self) -> int:
        """Its owner finds routes anew by itself."""
        return 0

    @property
    def is_awaited(self) -> bool:
        return self.awaits > 0

    @property
    def restricted(self) -> bool:
        return self.awaits > 0 or self.connection.is_full or len(self._asked) >= MOST_ASKED

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        return {}

    def drained(self) -> None:
        self.writable = True

    # Sends.

    def takes_input(self) -> None:
        """A chunk of input follows."""

    def took_input(self, sent: bool) -> None:
        self.close_run()

    def begin_run(self, target: RemoteTarget, tx: Tx | None = None, producer: str = "") -> Run:
        """Begin to gather messages for a target; those for another one go."""
        self.close_run()
        if target.number < 0 or self._targets[target.number] is not target:
            target.number = self._next_route
            self._targets[target.number] = target
            self._next_route = (self._next_route + 1) % verbs.ROUTES
            self.connection.write(verbs.encode_body(Kind.ROUTE, target.body, target.number))
        self.run_target = target
        self.run = Run(tx, producer)
        return self.run

    def close_run(self) -> None:
        run, target = self.run, self.run_target
        if target is None:
            if self._receipts:
                self._confirm_receipts()
            return
        if self._receipts:
            self._number_receipts(run)
        self.run_target, self.run_size = None, 0
        self.run = Run()
        for piece in verbs.encode_run(target.number, run):
            self.connection.write(piece)

    def _number_receipts(self, run: Run) -> None:
        """The tokens of a run get numbers that follow each other; of several of one message the first tells of all."""
        for token, place in zip(self._receipts, self._receipts.places, strict=True):
            if run.asked and run.asked[-1] == place:
                known = self._asked[self._last_ask]
                if type(known) is not _Asked:
                    known = self._asked[self._last_ask] = _Asked([known])
                known.tokens.append(token)
                continue
            ask = self._ask(token)
            run.ask = run.ask or ask
            run.asked.append(place)
        self._receipts.clear()
        self._receipts.places.clear()

    def _confirm_receipts(self) -> None:
        """Tokens without a message are of what was said before."""
        tokens = list(self._receipts)
        self._receipts.clear()
        self._receipts.places.clear()
        for token in tokens:
            self.confirm(token)

    def route(self, destination: str, traits: Traits = PLAIN) -> Route:
        """Find where messages to a destination go: to this shard, which asks for rights."""
        timing = traits.timing
        plan = None if timing is None else (timing.delay, timing.period, timing.repeat, timing.cron)
        body = verbs.Route(
            destination, traits.grouped, plan, traits.partition_key, traits.partition, traits.by_content
        )  # fmt: skip
        return Route(destination, RemoteTarget(self, body), self._receipts, stored=False)

    def accept(
        self, route: Route, content: bytes, how: Sending = USUAL, *, tx: Tx | None = None, token: Token = None
    ) -> bool:  # fmt: skip
        if self.restricted:
            return False
        target = route.target
        assert isinstance(target, RemoteTarget)
        target.send(
            content, how.expiration, how.priority, how.persistent, tx, how.producer, how.producer_sequence
        )  # fmt: skip
        if token is not None:
            self._receipts.append(token)
        return True

    # Other verbs.

    def open(self, who: Opening, token: Token = None) -> bool:
        self.client_id = who.client_id
        self._say(verbs.encode_body(Kind.OPEN, verbs.Open(who, self._ask(token))))
        return True

    def confirm(self, token: Token) -> None:
        self._say(verbs.encode_body(Kind.CONFIRM, verbs.Confirm(self._ask(token))))

    def recheck(self) -> Iterator[None]:
        """Its owner does so itself."""
        yield from ()

    def subscribe(self, spec: SubscribeSpec, token: Token = None) -> RemoteConsumer:
        self._check_room()
        self._last_consumer += 1
        consumer = self._consumers[self._last_consumer] = RemoteConsumer(self, spec, self._last_consumer)
        awaited = any([address.scope is Scope.REMOTE for address in spec.addresses])  # an answer might come before
        self.awaits += awaited
        ask = self._ask(_Asked([token], consumer, awaited))
        self._say(verbs.encode_body(Kind.SUBSCRIBE, verbs.Subscribe(spec, ask), consumer.number))
        return consumer

    def unsubscribe(self, consumer: Consumer, seen: Seen = UNKNOWN, token: Token = None) -> bool:
        if self.restricted:
            return False
        assert isinstance(consumer, RemoteConsumer)
        part = seen.part
        at_owner = part.at_owner if isinstance(part, RemotePart) and part.session is self else None
        last = None if seen.last is None else (at_owner, seen.last)
        body = verbs.Unsubscribe(seen.is_known, last, seen.is_alone, self._ask(token))
        self._say(verbs.encode_body(Kind.UNSUBSCRIBE, body, consumer.number))
        self._forget(consumer)
        return True

    def credit(self, consumer: Consumer, prefetch: int) -> None:
        assert isinstance(consumer, RemoteConsumer)
        self._say(verbs.encode_body(Kind.CREDIT, verbs.Credit(prefetch), consumer.number))

    def pull(self, consumer: Consumer, count: int, wait_ms: int) -> None:
        assert isinstance(consumer, RemoteConsumer)
        consumer.pulls += 1
        self._say(verbs.encode_body(Kind.PULL, verbs.Pull(consumer.pulls, count, wait_ms), consumer.number))

    def settle_part(self, part: RemotePart, sequences: list[int]) -> None:
        if part.consumer.spec.tracked:
            _take(part, sequences)
        self._say(verbs.encode_settle(part.at_owner, sequences))

    def settle(self, what: What, how: Settlement, *, tx: Tx | None = None, token: Token = None) -> bool:
        if tx is not None and self.restricted:
            return False
        if isinstance(what, Handles):
            assert isinstance(what.consumer, RemoteConsumer)
            body = verbs.Settle(how, tx, self._ask(token), None, [(*handle,) for handle in what.handles])
            self._say(verbs.encode_settle(what.consumer.number, [], body))
            return True
        part = what.part
        if not isinstance(part, RemotePart):
            raise UnknownMessage("the consumer of this message has gone")
        if part.number not in self.parts:
            return self._settle_late(part, what, token)
        if isinstance(what, UpTo):
            first_part = what.first_part.at_owner if isinstance(what.first_part, RemotePart) else None
            details = verbs.Settle(how, tx, self._ask(token), (what.first, what.expected, first_part))
            self._say(verbs.encode_settle(part.at_owner, [what.last], details))
            if part.consumer.spec.tracked:
                self._note_settled(part, _up_to(part, what.last), how, tx)
            return True
        assert isinstance(what, These)
        plain = how is ACCEPTED and tx is None and token is None
        details_of = None if plain else verbs.Settle(how, tx, self._ask(token))
        self._say(verbs.encode_settle(part.at_owner, what.sequences, details_of))
        if part.consumer.spec.tracked:
            self._note_settled(part, what.sequences, how, tx)
        return True

    def _settle_late(self, part: RemotePart, what: These | UpTo, token: Token) -> bool:
        """Messages of a part that is gone: a member has them no more, and that is no error; of others it is one."""
        consumer = part.consumer
        if consumer.spec.kind not in (ConsumerKind.MEMBER, ConsumerKind.READER):
            raise UnknownMessage("the consumer of this message has gone")
        if consumer.number in self._consumers:  # its partition was given out anew: they are fenced
            sequences = what.sequences if isinstance(what, These) else [what.last]
            handles = [(sequence, sequence, 0, -1) for sequence in sequences]
            self._say(verbs.encode_settle(consumer.number, [], verbs.Settle(ACCEPTED, handles=handles)))
        if token is not None:
            self.confirm(token)
        return True

    def _note_settled(self, part: RemotePart, sequences: list[int], how: Settlement, tx: Tx | None) -> None:
        """Messages of a tracked consumer are in flight no more, or not when their transaction ends."""
        if how.kind in _STAY:
            return
        if tx is None:
            _take(part, sequences)
        else:
            self._in_transactions.setdefault(tx, []).append((part, sequences))

    def begin(self, tx: Tx, token: Token = None) -> bool:
        return self._transact(verbs.Transact(tx, self._ask(token)))

    def end(self, tx: Tx, step: Step, token: Token = None) -> bool:
        for part, sequences in self._in_transactions.pop(tx, ()) if step is not Step.PREPARE else ():
            if step is not Step.ROLLBACK_KEEP:
                _take(part, sequences)
        return self._transact(verbs.Transact(tx, self._ask(token), step))

    def step(self, tx: Tx, text: str, token: Token) -> bool:
        """Have the part of a transaction over several shards make a step (``SpanningCommit``)."""
        return self._transact(verbs.Transact(tx, self._ask(token), None, text))

    def _transact(self, body: verbs.Transact) -> bool:
        self._say(verbs.encode_body(Kind.TX, body))
        return True

    def spoil(self, tx: Tx, error: QuireError) -> None:
        self._say(verbs.encode_body(Kind.SPOIL, verbs.Spoil(tx, verbs.failed(0, error))))

    def temporary(self, kind: DestinationKind, name: str = "", token: Token = None) -> Address:
        """Make a temporary destination. Until it is there, nothing more is taken: an answer might come before it."""
        self.awaits += 1
        ask = self._ask(_Asked([token], awaited=True))
        self._say(verbs.encode_body(Kind.TEMPORARY, verbs.Temporary(kind, name, ask)))
        return Address(kind, name, Scope.REMOTE)

    def call(self, name: str, arguments: tuple[Any, ...], token: Token = None) -> bool:
        if self.restricted:
            return False
        self._say(verbs.encode_body(Kind.CALL, verbs.Call(name, arguments, self._ask(token))))
        return True

    def leave(self, how: Leaving, token: Token = None) -> bool:
        """The client goes. Who vanished, or is blameless, says no more; what waits to be sent is dropped."""
        if self.is_over or self._has_left:
            return True
        self._has_left = True
        if how.kind is LeavingKind.BLAMELESS:
            self.connection.abort(LEFT)
        elif how.kind is LeavingKind.LOST:
            self.connection.abort()
        else:
            body = verbs.Leave(how.kind.name, how.cause, self._ask(token))
            self._say(verbs.encode_body(Kind.LEAVE, body))
            if token is None:
                self.connection.close()
        if token is None or self.connection.is_closed:
            self._end()
        return True

    def _say(self, frame: bytes) -> None:
        if self.run_target is not None or self._receipts:
            self.close_run()
        self.connection.write(frame)

    def _ask(self, token: Token) -> int:
        """The number for a token; 0 if none waits."""
        if token is None:
            return 0
        self._last_ask = self._last_ask % 0xFFFFFFFF + 1
        self._asked[self._last_ask] = token
        return self._last_ask

    def _check_room(self) -> None:
        if len(self._asked) >= MOST_ASKED:
            raise LimitExceeded(f"{MOST_ASKED} verbs wait for shard {self.shard}", limit=MOST_ASKED)

    def _forget(self, consumer: RemoteConsumer) -> None:
        self._consumers.pop(consumer.number, None)
        for part in consumer.parts:
            if self.parts.pop(part.number, None) is not None:
                del self._by_owner[part.at_owner]
                self._door.part_gone(part)

    def _end(self) -> None:
        self.is_over = True
        self._charge(-self._charged)
        self._charged = 0
        self._asked.clear()

    # Its end of the virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        """The owner says something. Bytes of an unfinished frame count as taken: else it might never be whole."""
        before = self._decoder.buffered
        self._decoder.receive(data)
        try:
            for frame in self._decoder.frames():
                handler = self._handlers.get(frame.kind)
                if handler is None:
                    raise ProtocolViolation(f"an owner says no {frame.kind.name}", command=frame.kind.name)
                handler(frame)
                if self.is_over:
                    return
            if (grown := self._decoder.buffered - before) and not self.is_over:
                self._charged += grown
                if self._charge(grown):
                    raise LimitExceeded("what is sent to clients in parts takes more memory than it may")
        except QuireError as fault:
            self.connection.abort(fault)
            self.ended(fault)
            return
        unfinished = self._decoder.buffered
        taken = len(data) if self._writable or unfinished == before + len(data) else unfinished
        self._owed += len(data) - taken
        if taken:
            self.connection.taken(taken)

    def room_again(self) -> None:
        if not self.restricted:
            self._door.go_on()

    def ended(self, error: QuireError | None) -> None:
        if self.is_over:
            return
        asked = [each for token in self._asked.values() for each in self._tokens(token) if each is not None]
        self._end()
        self._gone(self, error or ShardMoved(f"shard {self.shard} has ended the session", shard=self.shard), asked)

    # What the owner says.

    def _delivered(self, frame: VerbFrame) -> None:
        part = self._by_owner.get(frame.ref)
        if part is None:  # the consumer has gone
            return
        messages = verbs.read_deliver(frame)
        if part.consumer.spec.tracked:
            part.in_flight.update([(message.sequence, message) for message in messages])
        self._door.deliver(part, messages, bool(frame.flags & verbs.FIRST))

    def _done(self, frame: VerbFrame) -> None:
        tokens: list[Token] = []
        was_restricted = self.restricted
        for ask in verbs.read_done(frame):
            tokens += self._tokens(self._asked.pop(ask, None))
        tokens = [token for token in tokens if token is not None]
        if tokens:
            self._door.confirmed(tokens)
        self._go_on_again(was_restricted)
        if self._has_left and not self._asked:
            self.connection.close()
            self._end()

    def _tokens(self, token: Any) -> list[Token]:
        """The door's tokens of what has come back."""
        if type(token) is not _Asked:
            return [token]
        self.awaits -= token.awaited
        return token.tokens

    def _go_on_again(self, was_restricted: bool) -> None:
        if was_restricted and not self.restricted:
            self._door.go_on()

    def _result(self, frame: VerbFrame) -> None:
        told = verbs.read_body(frame, verbs.Result)
        for token in self._tokens(self._asked.pop(told.ask, None)):
            if token is not None:
                self._door.answered(token, told.result)

    def _failed(self, frame: VerbFrame) -> None:
        told = verbs.read_body(frame, verbs.Failed)
        was_restricted = self.restricted
        error, token = verbs.error_of(told), self._asked.pop(told.ask, None)
        if type(token) is _Asked and token.consumer is not None:
            self._forget(token.consumer)
        for each in self._tokens(token):
            self._door.failed(each, error)
        self._go_on_again(was_restricted)

    def _part_added(self, frame: VerbFrame) -> None:
        told = verbs.read_body(frame, verbs.PartAdded)
        consumer = self._consumers.get(told.consumer)
        if consumer is None:
            return
        try:
            destination = Destination(DestinationKind(told.kind), told.name)
        except ValueError:
            raise ProtocolViolation("the verb PART cannot be read", command="PART") from None
        part = RemotePart(self, next(self._numbers), frame.ref, consumer, destination, told.partition, told.epoch)
        consumer.parts.append(part)
        if told.is_only:
            consumer.only_part = part
        self.parts[part.number] = self._by_owner[frame.ref] = part
        self._door.part_added(part)

    def _part_gone(self, frame: VerbFrame) -> None:
        part = self._by_owner.pop(frame.ref, None)
        if part is not None:
            del self.parts[part.number]
            part.consumer.parts.remove(part)
            self._door.part_gone(part)

    def _pull_ended(self, frame: VerbFrame) -> None:
        told = verbs.read_body(frame, verbs.PullEnded)
        consumer = self._consumers.get(frame.ref)
        if consumer is not None and told.pull == consumer.pulls:
            self._door.pull_ended(consumer, told.left)

    def _browse_ended(self, frame: VerbFrame) -> None:
        consumer = self._consumers.get(frame.ref)
        if consumer is not None:
            self._door.browse_ended(consumer, verbs.read_body(frame, verbs.BrowseEnded).damaged)

    def _event(self, frame: VerbFrame) -> None:
        told = verbs.read_body(frame, verbs.Event)
        consumer = self._consumers.get(frame.ref)
        if consumer is not None:
            self._door.event(consumer, told.name, told.headers)

    def _consumer_ended(self, frame: VerbFrame) -> None:
        consumer = self._consumers.get(frame.ref)
        if consumer is not None:
            self._forget(consumer)
            self._door.consumer_ended(consumer, verbs.error_of(verbs.read_body(frame, verbs.Failed)))


_STAY = frozenset({
    SettlementKind.DELIVERED, SettlementKind.REDELIVERED, SettlementKind.EXTEND, SettlementKind.UNWRITABLE,
})  # fmt: skip
"""What leaves messages in flight, or may."""


def _take(part: RemotePart, sequences: list[int]) -> None:
    for sequence in sequences:
        part.in_flight.pop(sequence, None)


def _up_to(part: RemotePart, last: int) -> list[int]:
    """The messages of a tracked part up to one, in the order they were given."""
    given = list(part.in_flight)
    return given[: given.index(last) + 1] if last in part.in_flight else []
