"""A toy protocol: one command a line. It shows what a door needs beside its codec, and that it is little.

::

    hello NAME [PASSWORD]       who it is; nothing else comes before
    send DESTINATION BODY
    subscribe ID DESTINATION [PREFETCH]
    ack ID SEQUENCE, reject ID SEQUENCE
    begin TX, commit TX, abort TX; send, ack and reject take ``in TX`` at the end

What the client hears::

    ok NUMBER                           a command is done, and durable; NUMBER counts the commands
    error NUMBER CODE                   a command has failed; 0 for none: then the connection ends
    message ID SEQUENCE ATTEMPT BODY    a message; ATTEMPT counts its deliveries
"""

from typing import Any

from quire.broker.broker import Broker
from quire.broker.routing.addresses import read_destination
from quire.errors import ProtocolViolation, QuireError, UnknownSubscription
from quire.message import Message
from quire.server.connection import OUTPUT_LIMIT, ConnectedDoor, Connection, MakesSession, ProtocolDoors
from quire.sessions.base import (
    ACCEPTED,
    Consumer,
    Opening,
    Part,
    Session,
    Settlement,
    SettlementKind,
    Step,
    SubscribeSpec,
    These,
    Token,
)
from quire.sessions.rights import Gate

REJECTED = Settlement(SettlementKind.REJECTED)


class Lines:
    def __init__(self) -> None:
        self._bytes = b""
        self._count = 0

    @property
    def buffered(self) -> int:
        return len(self._bytes)

    def receive(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> list[tuple[int, list[str]]]:
        """The whole lines, numbered, in words."""
        *lines, self._bytes = self._bytes.split(b"\n")
        numbers = range(self._count + 1, self._count + len(lines) + 1)
        self._count += len(lines)
        return [(number, line.decode().split()) for number, line in zip(numbers, lines, strict=True)]


class ToyDoor(ConnectedDoor):
    batch = 1000
    protocol = "toy 1"
    sends_to: list[str] = []  # noqa: RUF012

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, session_of: MakesSession) -> None:
        self._session_of = session_of
        self._lines = Lines()
        self._consumers: dict[str, Consumer] = {}
        super().__init__(broker, gate, connection, self._lines)

    def _new_session(self) -> Session:
        return self._session_of(self.guard, self)

    # What the client says.

    def _next_input(self) -> list[Any]:
        return self._lines.take()

    def _process(self, pieces: list[Any], end: float) -> None:
        try:
            if not self.is_logged_in and not self._log_in(*pieces[0][1]):
                self._wait(pieces)
                return
        except QuireError as error:
            self.fail(error)
            return
        self.session.takes_input()
        for place, (number, words) in enumerate(pieces):
            try:
                if not self._do(number, *words):
                    self._wait(pieces[place:])
                    break
            except QuireError as error:
                self.failed(b"%d" % number, error)
        self.session.took_input(False)

    def _log_in(self, verb: str, name: str, password: str | None = None) -> bool:
        if verb != "hello":
            raise ProtocolViolation("hello comes first", command=verb)
        return not self._must_log_in(name, password)

    def _do(self, number: int, verb: str, *words: str) -> bool:
        """Whether a command was taken."""
        session, token = self.session, b"%d" % number
        tx = words[-1].encode() if words[-2:-1] == ("in",) else None
        if verb == "hello":
            return session.open(Opening(self.protocol), token)
        if verb == "send":
            content = b"message-id:toy-%d\ntimestamp:%d\n\n" % (number, self._core.clock.now_ms()) + words[1].encode()
            return session.accept(session.route(words[0]), content, tx=tx and b"l" + tx, token=token)
        if verb == "subscribe":
            addresses, _ = read_destination(words[1])
            spec = SubscribeSpec(words[0], tuple(addresses), prefetch=int(words[2]) if words[2:] else None)
            self._consumers[words[0]] = session.subscribe(spec, token)
            return True
        if verb in ("ack", "reject"):
            consumer = self._consumers.get(words[0])
            if consumer is None or consumer.only_part is None:
                raise UnknownSubscription(f"there is no consumer {words[0]!r}", id=words[0])
            what = These(consumer.only_part, [int(words[1])])
            return session.settle(what, ACCEPTED if verb == "ack" else REJECTED, tx=tx and b"l" + tx, token=token)
        if verb == "begin":
            return session.begin(b"l" + words[0].encode(), token)
        if verb in ("commit", "abort"):
            step = Step.COMMIT if verb == "commit" else Step.ROLLBACK
            return session.end(b"l" + words[0].encode(), step, token)
        raise ProtocolViolation(f"{verb!r} is no command", command=verb)

    # What the session says.

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        for message in messages:
            attempt = max(message.deliveries, 1) + 1 if message.redelivered else 1
            self.write(part.writer + b"%d %d " % (message.sequence, attempt) + message.body + b"\n")
        if self._output_size > OUTPUT_LIMIT:
            self.writable = False

    def confirmed(self, tokens: list[Token]) -> None:
        self.write(b"".join([b"ok %b\n" % token for token in tokens]))

    def answered(self, token: Token, result: Any) -> None:
        self.confirmed([token])

    def failed(self, token: Token | None, error: QuireError) -> None:
        self.write(b"error %b %b\n" % (token or b"0", error.code.encode()))

    def part_added(self, part: Part) -> None:
        part.writer = f"message {part.consumer.spec.id} ".encode()

    def part_gone(self, part: Part) -> None: ...

    def pull_ended(self, consumer: Consumer, left: int) -> None: ...

    def browse_ended(self, consumer: Consumer, damaged: int) -> None: ...

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None: ...

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        self.fail(error)

    def fail(self, error: QuireError) -> None:
        if not self.is_closed:
            self.failed(None, error)
            self.end(error.code)


class ToyDoors(ProtocolDoors):
    """The toy clients of a process."""

    name = "toy"
    max_connections = 100
    patience = 30.0

    def session(self, connection: Connection) -> ToyDoor:
        return ToyDoor(self._broker, self._gate, connection, self._session_of)

    def refusal(self, error: QuireError) -> bytes:
        return b"error 0 %b\n" % error.code.encode()
