"""A STOMP client's session: turns frames into calls of the core, and the core's answers into frames.

The hot path is ``receive``, ``_process``, ``deliver``, ``confirmed``, ``flush``. A SEND whose head was seen before
costs one look into ``StompSends.routes``; an acknowledgement costs its share of a run. Everything else goes through the
table of handlers.
"""

from collections.abc import Callable
from itertools import groupby

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.routing.own_temporaries import OwnTemporaries
from quire.errors import ConnectionTimeout, InvalidHeader, LimitExceeded, QuireError
from quire.message import Message
from quire.protocols.stomp.decoder import BATCH, Decoder, Event, Limits
from quire.protocols.stomp.encoder import encode_frame, encode_receipts, error_frame
from quire.protocols.stomp.frames import AckRun, Head
from quire.protocols.stomp.states import State, check_required, next_state
from quire.protocols.stomp.versions import Version, heart_beat, negotiate
from quire.server.connection import Connection
from quire.server.stomp.acknowledgements import Acknowledgements
from quire.server.stomp.client_session import ClientSession
from quire.server.stomp.heart_beat import HeartBeat
from quire.server.stomp.message_frames import marker
from quire.server.stomp.stomp_consumers import PULL, StompConsumers
from quire.server.stomp.stomp_rejection import read_rejection
from quire.server.stomp.stomp_sends import StompSends
from quire.server.stomp.stomp_transactions import StompTransactions

OUTPUT_LIMIT = 256 * 1024
"""With more output than this gathered, nothing more is dispatched to the connection until it is written."""

INPUT_BUDGET = 0.01
"""How long the frames of one connection are taken in one turn, in seconds. The time is looked at after each batch of
the decoder's events, and after each frame that is more than a plain SEND or ACK."""

LARGE = 1 << 20
"""Pieces of output with more bytes than this are written by themselves."""

GOODBYE_AGAIN = 0.1
"""After how many seconds a client that leaves while the store fails is looked at again."""

MIN_HEART_BEAT = 1000
"""The shortest heart-beat interval the broker agrees to, in milliseconds."""


class StompSession(ClientSession):
    """One client."""

    def __init__(self, broker: Broker, connection: Connection) -> None:
        settings = broker.core.settings.stomp
        self.name = connection.peer
        self.version = Version.V1_2
        self.connected_at = broker.core.clock.now_ms()
        self.temporaries = OwnTemporaries(broker.routing.temporaries)
        self.consumers = StompConsumers(broker, self)
        self.client_id: str | None = None
        self.held = False
        self._broker = broker
        self._core = broker.core
        self._connection = connection
        self._decoder = Decoder(Limits(settings.max_headers, settings.max_line, settings.max_body))
        self._state = State.CONNECTING
        self._table = self.consumers.table
        self._acknowledgements = Acknowledgements(self._table)
        self._transactions = StompTransactions(broker, self, self._table.rolled_back)
        self._sends = StompSends(broker, self, self._transactions)
        self._output: list[bytes] = []
        self._output_size = 0
        self._waiting: list[Event] = []
        self._partial = 0
        self._has_connected = False
        self._heart_beat: HeartBeat | None = None
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        consumers, transactions = self.consumers, self._transactions
        self._handlers: dict[bytes, Callable[[Head], None]] = {
            b"CONNECT": self._connect, b"STOMP": self._connect, b"DISCONNECT": self._disconnect,
            b"SUBSCRIBE": consumers.subscribe, b"UNSUBSCRIBE": consumers.unsubscribe, b"ACK": self._ack,
            b"NACK": self._nack, b"BEGIN": transactions.begin, b"COMMIT": transactions.commit,
            b"ABORT": transactions.abort,
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
        clock = self._core.clock
        end = clock.monotonic() + INPUT_BUDGET
        while True:
            try:
                events = self._waiting or self._decoder.next_events()
            except QuireError as fault:
                self.fail(fault)
                return
            if not events:
                break
            self._waiting = []
            self._process(events, end)
            if self.held or self._state is State.CLOSED:
                return
            if len(events) == BATCH and clock.monotonic() > end:
                self._put_off([])
                return
        self._count_partial()

    def _count_partial(self) -> None:
        """Unfinished frames of all connections together are bounded, or many slow senders could fill the memory."""
        core, buffered = self._core, self._decoder.buffered
        grown, self._partial = buffered - self._partial, buffered
        if grown and core.charge_partial(grown):
            held, limit = core.partial_bytes, core.partial_limit
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
        core, sends = self._core, self._sends
        if sends.version != self._broker.destinations.version:
            sends.forget()
        core.takes_sends_of(self)
        restricted = core.is_restricted
        stamp = b"\ntimestamp:%d\n" % core.clock.now_ms()
        receipts: list[bytes] = []
        sent = False
        routes, prefix, next_id, join = sends.routes, core.id_prefix, core.next_message_id, b"".join
        try:
            for index, (head, receipt, body) in enumerate(events):
                route = routes.get(head)
                try:
                    if route is not None:
                        if restricted and sends.must_wait(route):
                            self._wait(events[index:])
                            break
                        content = join((prefix, b"%d" % next_id(), stamp, route.lines, body))
                        route.target.send(content, route.expiration, route.priority, route.persistent)
                        sent = True
                    elif head.base and not restricted and sends.send_like(head, stamp, body):
                        sent = True
                    elif isinstance(head, AckRun):
                        self._acknowledgements.acknowledge_run(head.ids)
                    elif self._take_other(events, index, receipts, end):
                        continue
                    else:
                        break
                except QuireError as error:
                    self.fail(error, receipt)
                    break
                if receipt is not None:
                    receipts.append(receipt)
        except Exception as defect:
            self.fail(QuireError(f"the broker failed: {defect!r}"))
            raise
        finally:
            self._taken(sent, receipts)

    def _taken(self, sent: bool, receipts: list[bytes]) -> None:
        """Events were taken: say what of them concerns the open commit."""
        self._core.takes_sends_of(None)
        if sent:
            self._core.sent(self)
        if receipts:
            self._core.confirm(self, receipts)

    def _take_other(self, events: list[Event], index: int, receipts: list[bytes], end: float) -> bool:
        """Take an event that is more than a plain SEND or ACK; whether there is time for the next one now."""
        head, receipt, body = events[index]
        if not self._other(head, receipt, body, receipts):
            self._wait(events[index:])
            return False
        if self._core.clock.monotonic() > end:
            self._put_off(events[index + 1 :])
            return False
        return True

    def _put_off(self, events: list[Event]) -> None:
        """Go on with the input in the next turn: others are to have their turn too."""
        self._wait(events)
        self._core.steps.add(self._go_on, "input that was put off", stores=False)

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
            if head.headers["destination"].startswith(PULL):
                self.consumers.pull(head)
            elif not self._sends.send(head, body):
                return False
        elif head.command == b"COMMIT" and self._transactions.must_gather(head):
            return False
        else:
            self._handlers[head.command](head)
        if receipt is not None:
            if head.command != b"SUBSCRIBE":
                receipts.append(receipt)
            elif not self.consumers.when_subscribed(head, lambda: self.confirmed([receipt])):
                # Before what was written meanwhile: the receipt comes before the first message, and before events.
                self._output.insert(written, encode_receipts([receipt]))
                self._core.unwritten(self)
        return True

    # Output.

    def write(self, data: bytes) -> None:
        """Have something written at the end of the turn."""
        self._output.append(data)
        self._output_size += len(data)
        self._core.unwritten(self)

    def deliver(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Write messages to a consumer."""
        self._output += self._table.consumers[subscription.number].frames(subscription, messages, extra)
        self._output_size += sum([message.size for message in messages])
        self._core.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.writable = False

    def confirmed(self, receipts: list[bytes]) -> None:
        """Write receipts."""
        if self._state is State.CLOSED:
            return
        self.write(encode_receipts(receipts))

    def nothing_came(self, subscription: Subscription) -> None:
        """Say that a pull ended without a message: a MESSAGE frame without one, marked by a header."""
        self.write(marker(subscription, b"pull:end\n", self.version))

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
        self._core.ask_turn()

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
        seconds = self._core.settings.stomp.connect_timeout
        self.fail(ConnectionTimeout(f"no CONNECT frame within {seconds:g} s", seconds=seconds))

    def _disconnect(self, head: Head) -> None:
        self._leave("the consumer disconnected", lost=False)
        self._core.after_commit(self._goodbye)

    def _goodbye(self) -> None:
        """Everything the client sent is durable, and its receipts are written; or it is tried again."""
        broker = self._broker
        if broker.core.store_error is not None and self._state is not State.CLOSED:
            # Not at once: commits without anything to store end at once, and this would go on without end.
            broker.core.scheduler.call_later(GOODBYE_AGAIN, lambda: broker.core.after_commit(self._goodbye))
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
        self._core.connection_ended()
        self._state = State.CLOSED
        self.writable = False
        self._connect_timer.cancel()
        if self._heart_beat:
            self._heart_beat.stop()
        self._waiting = []
        self.held = False
        self._core.charge_partial(-self._partial)
        self._partial = 0
        self._leave("the consumer's connection was lost", lost=True)
        if self._has_connected:
            self._has_connected = False
            self._broker.advisories.connection_stopped(self, self.client_id)

    def _leave(self, cause: str, *, lost: bool) -> None:
        self._transactions.leave()
        self.consumers.leave(cause, lost=lost)
        self.temporaries.end()
        if self.client_id is not None:
            self._broker.routing.client_ids.release(self.client_id, self)
        self._sends.forget()
        self._core.flow.forget(self)

    # ACK and NACK.

    def _ack(self, head: Head) -> None:
        transaction = self._transactions.of(head)
        for consumer, subscription, sequences in self._acknowledgements.find(head, acknowledges=transaction is None):
            if transaction is None:
                consumer.acknowledge(subscription, sequences)
            else:
                transaction.acknowledge(subscription, sequences)

    def _nack(self, head: Head) -> None:
        covered = self._acknowledgements.find(head, acknowledges=False)
        for consumer, _, _ in covered:
            if consumer.not_rejectable:
                raise InvalidHeader(consumer.not_rejectable, header="id")
        transaction = self._transactions.of(head)
        rejection = read_rejection(head.headers)
        for consumer, subscription, sequences in covered:
            if transaction is None or rejection.extend_ms is not None:  # a lease is extended at once
                consumer.reject(subscription, sequences, rejection)
            else:
                transaction.reject(subscription, sequences)
