"""A STOMP client's session: turns frames into calls of the core, and the core's answers into frames.

The hot path is ``receive``, ``_process``, ``deliver``, ``confirmed``, ``flush``. A SEND whose head was seen before
costs one look into ``_routes``; an acknowledgement costs its share of a run. Everything else goes through the table of
handlers.
"""

from collections.abc import Callable
from functools import partial
from itertools import groupby

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.flow import HoldCause
from quire.broker.routing.own_temporaries import OwnTemporaries
from quire.broker.routing.route import Route, route_of
from quire.broker.session import Session
from quire.broker.subscription import Subscription
from quire.broker.transactions.transaction import Transaction
from quire.errors import (
    ConnectionTimeout,
    LimitExceeded,
    QuireError,
    StoreError,
    TransactionTooLarge,
    UnknownTransaction,
)
from quire.message import Message
from quire.protocols.stomp.decoder import Decoder, Event, Limits
from quire.protocols.stomp.encoder import encode_frame, encode_receipts, error_frame
from quire.protocols.stomp.frames import AckRun, Head
from quire.protocols.stomp.states import State, check_required, next_state
from quire.protocols.stomp.versions import Version, heart_beat, negotiate
from quire.server.connection import Connection
from quire.server.stomp.heart_beat import HeartBeat
from quire.server.stomp.route_pattern import RoutePattern
from quire.server.stomp.stomp_consumers import PULL, StompConsumers
from quire.server.stomp.stomp_rejection import read_rejection

OUTPUT_LIMIT = 256 * 1024
"""With more output than this gathered, nothing more is dispatched to the connection until it is written."""

INPUT_BUDGET = 0.01
"""How long the frames of one connection are taken in one turn, in seconds. The time is looked at after each batch of
the decoder's events, and after each frame that is more than a plain SEND or ACK."""

LARGE = 1 << 20
"""Pieces of output with more bytes than this are written by themselves."""

MAX_ROUTES = 128
"""How many routes are kept: more than the decoder keeps heads, so that none is kept in vain."""

MAX_TRANSACTIONS = 1000
"""How many transactions a connection may have open."""

GOODBYE_AGAIN = 0.1
"""After how many seconds a client that leaves while the store fails is looked at again."""

MIN_HEART_BEAT = 1000
"""The shortest heart-beat interval the broker agrees to, in milliseconds."""


class StompSession(Session):
    """One client.

    Args:
        broker: the core.
        connection: the transport's half.

    Attributes:
        version: of the protocol.
        connected_at: since when it is here, in milliseconds since the epoch.
        consumers: its consumers.
        temporaries: its temporary destinations.
        client_id: the name the client gave itself, or None.
        held: whether its input waits, for room or for its turn.
    """

    def __init__(self, broker: Broker, connection: Connection) -> None:
        settings = broker.settings.stomp
        self.name = connection.peer
        self.version = Version.V1_2
        self.connected_at = broker.clock.now_ms()
        self.temporaries = OwnTemporaries(broker.routing.temporaries)
        self.consumers = StompConsumers(broker, self)
        self.client_id: str | None = None
        self.held = False
        self._broker = broker
        self._connection = connection
        self._decoder = Decoder(Limits(settings.max_headers, settings.max_line, settings.max_body))
        self._state = State.CONNECTING
        self._routes: dict[Head, Route] = {}
        self._patterns: dict[Head | None, RoutePattern | None] = {}
        self._routes_version = broker.destinations.version
        self._transactions: dict[str, Transaction] = {}
        self._output: list[bytes] = []
        self._output_size = 0
        self._waiting: list[Event] = []
        self._partial = 0
        self._has_connected = False
        self._heart_beat: HeartBeat | None = None
        self._connect_timer = broker.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        self._handlers: dict[bytes, Callable[[Head], None]] = {
            b"CONNECT": self._connect, b"STOMP": self._connect, b"SUBSCRIBE": self.consumers.subscribe,
            b"UNSUBSCRIBE": self.consumers.unsubscribe, b"ACK": self._ack, b"NACK": self._nack, b"BEGIN": self._begin,
            b"COMMIT": self._commit, b"ABORT": self._abort, b"DISCONNECT": self._disconnect,
        }  # fmt: skip

    @property
    def unread(self) -> int:
        """How many octets have come that are not read because reading is paused."""
        return self._connection.unread

    # Input.

    def receive(self, data: bytes) -> None:
        """Take what came over the connection."""
        if self._heart_beat:
            self._heart_beat.received()
        self._decoder.receive(data)
        if not self.held:
            self._take_input()

    def _take_input(self) -> None:
        """Do what frames say until nothing is left, it has to wait, or the time of this turn is over."""
        clock = self._broker.clock
        end = clock.monotonic() + INPUT_BUDGET
        while events := self._waiting or self._next_events():
            if clock.monotonic() > end:
                self._put_off(events)
                return
            self._waiting = []
            self._process(events, end)
            if self.held or self._state is State.CLOSED:
                return
        self._count_partial()

    def _next_events(self) -> list[Event]:
        try:
            return self._decoder.next_events()
        except QuireError as fault:
            self.fail(fault)
            return []

    def _count_partial(self) -> None:
        """Unfinished frames of all connections together are bounded, or many slow senders could fill the memory."""
        broker, buffered = self._broker, self._decoder.buffered
        grown, self._partial = buffered - self._partial, buffered
        broker.partial_bytes += grown
        if grown > 0 and broker.partial_bytes > broker.partial_limit:
            held, limit = broker.partial_bytes, broker.partial_limit
            self.fail(LimitExceeded(f"unfinished frames hold {held} bytes in all, the limit is {limit}", limit=limit))

    def resume(self) -> None:
        """Go on with the input that waited."""
        self.held = False
        self._connection.resume_reading("held")
        self._take_input()

    def _wait(self, events: list[Event]) -> None:
        """Take no more input until ``resume``; these events come first then."""
        self._waiting = events
        self.held = True
        self._connection.pause_reading("held")

    # Long, but without a call per frame that could be spared: the hottest code beside the decoder.
    def _process(self, events: list[Event], end: float) -> None:  # noqa: C901
        """Do what frames say. One SEND costs one pass of the loop and ``Queue.send``."""
        broker = self._broker
        if self._routes_version != broker.destinations.version:
            self._forget_routes()
            self._routes_version = broker.destinations.version
        broker.sender = self
        restricted = broker.is_restricted
        stamp = b"\ntimestamp:%d\n" % broker.clock.now_ms()
        receipts: list[bytes] = []
        sent = False
        routes, prefix, next_id, join = self._routes, broker.id_prefix, broker.next_message_id, b"".join
        try:
            for index, (head, receipt, body) in enumerate(events):
                route = routes.get(head)
                try:
                    if route is not None:
                        if restricted and self._must_wait(route):
                            self._wait(events[index:])
                            break
                        content = join((prefix, b"%d" % next_id(), stamp, route.lines, body))
                        route.target.send(content, route.expiration, route.priority, route.persistent)
                        sent = True
                    elif head.base and not restricted and self._send_like(head, stamp, body):
                        sent = True
                    elif isinstance(head, AckRun):
                        self.consumers.acknowledge_run(head.ids)
                    elif not self._other(head, receipt, body, receipts):
                        self._wait(events[index:])
                        break
                    elif broker.clock.monotonic() > end:
                        self._put_off(events[index + 1 :])
                        break
                    else:
                        continue
                except QuireError as error:
                    self.fail(error, receipt)
                    break
                if receipt is not None:
                    receipts.append(receipt)
        except Exception as defect:
            self.fail(QuireError(f"the broker failed: {defect!r}"))
            raise
        finally:
            broker.sender = None
            if sent:
                broker.sent(self)
            if receipts:
                broker.confirm(self, receipts)

    def _put_off(self, events: list[Event]) -> None:
        """Go on with the input in the next turn: others are to have their turn too."""
        self._wait(events)
        self._broker.steps.add(self._go_on, "input that was put off", stores=False)

    def _go_on(self) -> bool:
        if self.held:  # else the connection is gone
            self.resume()
        return False

    def _other(self, head: Head, receipt: bytes | None, body: bytes | bytearray, receipts: list[bytes]) -> bool:
        """Do what any other frame says; False if it has to wait for room."""
        self._state = next_state(self._state, head.command)
        check_required(head, self.version)
        written = len(self._output)
        if head.command == b"SEND":
            if not self._send(head, body):
                return False
        elif head.command == b"COMMIT" and self._must_gather(head):
            return False
        else:
            self._handlers[head.command](head)
        if receipt is not None:
            if head.command != b"SUBSCRIBE":
                receipts.append(receipt)
            elif not self.consumers.when_subscribed(head, lambda: self.confirmed([receipt])):
                # Before what was written meanwhile: the receipt comes before the first message, and before events.
                self._output.insert(written, encode_receipts([receipt]))
                self._broker.unwritten(self)
        return True

    # Output.

    def write(self, data: bytes) -> None:
        """Have something written at the end of the turn."""
        self._output.append(data)
        self._output_size += len(data)
        self._broker.unwritten(self)

    def deliver(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Write messages to a consumer."""
        self._output += self.consumers.frames(subscription, messages, extra)
        self._output_size += sum([message.size for message in messages])
        self._broker.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.writable = False

    def confirmed(self, receipts: list[bytes]) -> None:
        """Write receipts."""
        if self._state is State.CLOSED:
            return
        self.write(encode_receipts(receipts))

    def nothing_came(self, subscription: Subscription) -> None:
        """Say that a pull ended without a message: a MESSAGE frame without one, marked by a header."""
        self.write(self.consumers.marker(subscription, b"pull:end\n"))

    def flush(self) -> None:
        """Write what has gathered, in one write."""
        output, self._output, size, self._output_size = self._output, [], self._output_size, 0
        if size > LARGE:  # a large message is not copied once more
            for is_large, pieces in groupby(output, lambda piece: len(piece) > LARGE):
                for data in pieces if is_large else [b"".join(pieces)]:
                    self._connection.write(data)
        elif output:
            self._connection.write(b"".join(output))
        if not self.writable and self._connection.is_writable and self._state is not State.CLOSED:
            self.output_drained()

    def output_drained(self) -> None:
        """The transport takes output again."""
        self.writable = True
        self.consumers.wake()
        self._broker.ask_turn()

    # A connection's life.

    def _connect(self, head: Head) -> None:
        self.version = self._decoder.version = negotiate(head)
        if "client-id" in head.headers:
            self._broker.routing.client_ids.claim(head.headers["client-id"], self)
            self.client_id = head.headers["client-id"]
        can_send, wants = (max(beat, MIN_HEART_BEAT) if beat else 0 for beat in heart_beat(head))
        self._connect_timer.cancel()
        headers = {
            "version": str(self.version),
            "server": f"quire/{__version__}",
            "session": self.name.replace(":", "-"),
        }
        headers["heart-beat"] = f"{wants},{can_send}"
        self.write(encode_frame(b"CONNECTED", headers, version=self.version))
        self._state = next_state(self._state, b"CONNECTED")
        self._has_connected = True
        self._broker.advisories.connection_started(self, self.client_id)
        if can_send or wants:
            self._heart_beat = HeartBeat(self._broker, self, wants / 1000, can_send / 1000)

    def _connect_timed_out(self) -> None:
        seconds = self._broker.settings.stomp.connect_timeout
        self.fail(ConnectionTimeout(f"no CONNECT frame within {seconds:g} s", seconds=seconds))

    def _disconnect(self, head: Head) -> None:
        self._leave("the consumer disconnected", lost=False)
        self._broker.after_commit(self._goodbye)

    def _goodbye(self) -> None:
        """Everything the client sent is durable, and its receipts are written; or it is tried again."""
        broker = self._broker
        if broker.store_error is not None and self._state is not State.CLOSED:
            # Not at once: commits without anything to store end at once, and this would go on without end.
            broker.scheduler.call_later(GOODBYE_AGAIN, lambda: broker.after_commit(self._goodbye))
            return
        self.flush()
        self._connection.close()

    def fail(self, error: QuireError, receipt: bytes | None = None) -> None:
        """Tell the client what went wrong and close."""
        if self._state is not State.CLOSED:
            self.write(error_frame(error, self.version, receipt))
            self.flush()
            self._connection.close()
            self.closed()

    def stop(self, error: QuireError) -> None:
        """The broker goes down: the consumers go in peace, and the client is told."""
        self._leave("the broker stopped", lost=False)
        self.fail(error)

    def closed(self) -> None:
        """The connection is gone, with or without a DISCONNECT before."""
        self._broker.ended += 1
        self._state = State.CLOSED
        self.writable = False
        self._connect_timer.cancel()
        if self._heart_beat:
            self._heart_beat.stop()
        self._waiting = []
        self.held = False
        self._broker.partial_bytes -= self._partial
        self._partial = 0
        self._leave("the consumer's connection was lost", lost=True)
        if self._has_connected:
            self._has_connected = False
            self._broker.advisories.connection_stopped(self, self.client_id)

    def _leave(self, cause: str, *, lost: bool) -> None:
        for transaction in self._transactions.values():
            transaction.abandon()
        self._transactions.clear()
        self.consumers.leave(cause, lost=lost)
        self.temporaries.end()
        if self.client_id is not None:
            self._broker.routing.client_ids.release(self.client_id, self)
        self._forget_routes()
        self._broker.flow.forget(self)

    # SEND.

    def _send(self, head: Head, body: bytes | bytearray) -> bool:
        """A SEND whose head was not seen before, or that is more than a plain one. False if it has to wait."""
        broker = self._broker
        if head.headers["destination"].startswith(PULL):
            self.consumers.pull(head)
            return True
        route = route_of(broker, head.headers, self.temporaries)
        if self._must_wait(route):
            return False
        stamp = b"\ntimestamp:%d\n" % broker.clock.now_ms()
        content = b"".join((broker.id_prefix, b"%d" % broker.next_message_id(), stamp, route.lines, body))
        if route.transaction is not None:
            self._transaction(route.transaction).send(route, content)
            return True
        broker.sent(self)  # with a duplicate too: what it repeats may be in a commit that fails
        if route.producer is not None and not broker.take_producer_sequence(route.producer, route.producer_sequence):
            return True
        route.target.send(content, route.expiration, route.priority, route.persistent)
        if route.producer is None:
            if len(self._routes) >= MAX_ROUTES:
                self._forget_routes()
            if head.base is None:
                self._routes[head] = route
            elif head.base not in self._patterns:
                self._learn(head.base)
        return True

    def _learn(self, base: Head) -> None:
        """Others may come that are like a head, as one just did."""
        if len(self._patterns) >= MAX_ROUTES:
            self._patterns.clear()
        route = route_of(self._broker, base.headers, self.temporaries)
        self._patterns[base] = RoutePattern(route, base) if RoutePattern.suits(route) else None

    def _send_like(self, head: Head, stamp: bytes, body: bytes | bytearray) -> bool:
        """A SEND whose head is like another one; False if it has to be read in full."""
        pattern = self._patterns.get(head.base)
        if pattern is None:
            return False
        route, broker = pattern.route, self._broker
        target = pattern.target(head, broker.routing)
        lines, expiration = pattern.lines(head), pattern.expiration(head)
        if target is None or lines is None or expiration is None:
            return False
        content = b"".join((broker.id_prefix, b"%d" % broker.next_message_id(), stamp, lines, body))
        target.send(content, expiration, route.priority, route.persistent)
        return True

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._patterns.clear()

    def _must_wait(self, route: Route) -> bool:
        """Hold this producer if a limit it is subject to is exceeded; refuse it if the store takes no writes."""
        broker = self._broker
        if route.stored and broker.store_error is not None:
            raise broker.store_error
        cause = broker.hold_cause(stored=route.stored)
        if cause is None:
            return False
        limit = broker.settings.store.limit
        if cause is HoldCause.STORE and route.transaction is not None and broker.transaction_bytes >= limit:
            # Consumers cannot make room, and this producer's COMMIT would wait behind its SEND.
            text = f"the open transactions hold {limit} bytes of messages, as many as the store may (store.limit)"
            raise TransactionTooLarge(text, limit=limit)
        broker.flow.hold(self, cause, route.destination.removeprefix("/queue/"))
        return True

    # ACK, NACK and transactions.

    def _ack(self, head: Head) -> None:
        transaction = self._transaction_of(head)
        covered = self.consumers.find(head, acknowledges=transaction is None)
        for subscription, sequences in covered:
            if transaction is None:
                self.consumers.acknowledge(subscription, sequences)
            else:
                transaction.acknowledge(subscription, sequences)

    def _nack(self, head: Head) -> None:
        covered = self.consumers.find(head, acknowledges=False)
        self.consumers.check_rejectable(covered)
        transaction = self._transaction_of(head)
        rejection = read_rejection(head.headers)
        for subscription, sequences in covered:
            if transaction is None or rejection.extend_ms is not None:  # a lease is extended at once
                self.consumers.reject(subscription, sequences, rejection)
            else:
                transaction.reject(subscription, sequences)

    def _transaction_of(self, head: Head) -> Transaction | None:
        """The transaction that a frame is part of; None if it is part of none."""
        name = head.headers.get("transaction")
        return None if name is None else self._transaction(name)

    def _transaction(self, name: str) -> Transaction:
        try:
            return self._transactions[name]
        except KeyError:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60]) from None

    def _begin(self, head: Head) -> None:
        name = head.headers["transaction"]
        if len(self._transactions) >= MAX_TRANSACTIONS:
            raise LimitExceeded(f"{MAX_TRANSACTIONS} transactions are open, which is the limit", limit=MAX_TRANSACTIONS)
        if name in self._transactions:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        self._transactions[name] = Transaction(self._broker)

    def _must_gather(self, head: Head) -> bool:
        """Whether a COMMIT has to wait until what it is about is found: it is much, and found in steps."""
        transaction = self._transaction(head.headers["transaction"])
        if not transaction.gather():
            return False
        self._broker.steps.add(partial(self._gather, transaction), "a large transaction", stores=False)
        return True

    def _gather(self, transaction: Transaction) -> bool:
        if not self.held:  # the connection is gone, and the transaction with it
            return False
        try:
            if transaction.gather():
                return True
        except StoreError:  # the COMMIT, which tries it again, fails as others do
            pass
        self.resume()
        return False

    def _commit(self, head: Head) -> None:
        self._transaction(head.headers["transaction"]).commit()
        del self._transactions[head.headers["transaction"]]
        self._broker.sent(self)

    def _abort(self, head: Head) -> None:
        self.consumers.rolled_back.note(self._transaction(head.headers["transaction"]).roll_back())
        del self._transactions[head.headers["transaction"]]
