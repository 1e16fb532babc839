"""A STOMP client's session: turns frames into calls of the core, and the core's answers into frames.

The hot path is ``receive``, ``_process``, ``deliver``, ``confirmed``, ``flush``. A SEND whose head was seen before
costs one look into ``StompSends.routes``; an acknowledgement costs its share of a run. Everything else goes through the
table of handlers.
"""

from collections.abc import Callable
from typing import Any

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.routing.temporary import OwnTemporaries
from quire.errors import ConnectionTimeout, InvalidHeader, QuireError
from quire.message import Message
from quire.protocols.stomp.decoder import BATCH, Decoder, Event, Limits
from quire.protocols.stomp.encoder import encode_frame, encode_receipts, error_frame
from quire.protocols.stomp.frames import AckRun, Head
from quire.protocols.stomp.states import State, check_required, next_state
from quire.protocols.stomp.versions import Version, heart_beat, negotiate
from quire.server.connected_session import OUTPUT_LIMIT
from quire.server.connection import Connection
from quire.server.heart_beat import HeartBeat
from quire.server.stomp.acknowledgements import Acknowledgements
from quire.server.stomp.client_session import ClientSession
from quire.server.stomp.message_frames import FIRST_OF_GROUP
from quire.server.stomp.stomp_consumers import PULL, StompConsumers
from quire.server.stomp.stomp_rejection import read_rejection
from quire.server.stomp.stomp_sends import StompSends
from quire.server.stomp.stomp_transactions import StompTransactions
from quire.sessions.rights import Gate

GOODBYE_AGAIN = 0.1
"""After how many seconds a client that leaves while the store fails is looked at again."""

MIN_HEART_BEAT = 1000
"""The shortest heart-beat interval the broker agrees to, in milliseconds."""


class StompSession(ClientSession):
    """One client."""

    batch = BATCH

    def __init__(self, broker: Broker, gate: Gate, connection: Connection) -> None:
        settings = broker.core.settings.stomp
        self._decoder = Decoder(Limits(settings.max_headers, settings.max_line, settings.max_body))
        super().__init__(broker, gate, connection, self._decoder)
        self.version = Version.V1_2
        self.temporaries = OwnTemporaries(broker.routing.temporaries)
        self.consumers = StompConsumers(broker, self)
        self._state = State.CONNECTING
        self._table = self.consumers.table
        self._acknowledgements = Acknowledgements(self._table)
        self._transactions = StompTransactions(broker, self, self._table.rolled_back)
        self._sends = StompSends(broker, self, self._transactions)
        self._has_connected = False
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        consumers, transactions = self.consumers, self._transactions
        self._handlers: dict[bytes, Callable[[Head], None]] = {
            b"CONNECT": self._connect, b"STOMP": self._connect, b"DISCONNECT": self._disconnect,
            b"SUBSCRIBE": consumers.subscribe, b"UNSUBSCRIBE": consumers.unsubscribe, b"ACK": self._ack,
            b"NACK": self._nack, b"BEGIN": transactions.begin, b"COMMIT": transactions.commit,
            b"ABORT": transactions.abort,
        }  # fmt: skip

    @property
    def protocol(self) -> str:
        """What it speaks, with the version."""
        return f"stomp {self.version}"

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        """Its subscriptions of the core, by number."""
        return self._table.subscriptions

    @property
    def sends_to(self) -> list[str]:
        """The destinations it has sent to lately, as headers have them."""
        return list(self._sends.destinations)

    # Input.

    def _next_input(self) -> list[Event]:
        """The next events of the decoder."""
        return self._decoder.next_events()

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

    def _other(self, head: Head, receipt: bytes | None, body: bytes | bytearray, receipts: list[bytes]) -> bool:
        """Do what any other frame says; False if it has to wait for room."""
        if self._state is State.CONNECTING and (self._must_wait_for_login(head) or not self._claims(head)):
            return False
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
            if head.command != b"SUBSCRIBE" or self.consumers.is_unstored(head):
                receipts.append(receipt)
            elif not self.consumers.when_subscribed(head, lambda: self.confirmed([receipt])):
                # Before what was written meanwhile: the receipt comes before the first message, and before events.
                self._output.insert(written, encode_receipts([receipt]))
                self._core.unwritten(self)
        return True

    # Output.

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        """Write messages to a consumer."""
        self._output += self._table.consumers[subscription.number].frames(
            subscription, messages, FIRST_OF_GROUP if first else b""
        )
        self._output_size += sum([message.size for message in messages])
        self._core.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.writable = False

    def confirmed(self, receipts: list[Any]) -> None:
        """Write receipts."""
        if self.is_closed:
            return
        self.write(encode_receipts(receipts))

    def _wake_consumers(self) -> None:
        """The connection takes output again."""
        self.consumers.wake()

    # A connection's life.

    def _must_wait_for_login(self, head: Head) -> bool:
        """Whether CONNECT has to wait until it is known who the client is. Nothing else may come before it."""
        next_state(self._state, head.command)
        self.version = negotiate(head)
        return not self.is_logged_in and self._must_log_in(head.headers.get("login"), head.headers.get("passcode"))

    def _forget_sends(self) -> None:
        """Ask again what the client may send to."""
        self._sends.forget()

    def _look_again(self) -> None:
        """Consumers of wildcards may have other destinations now."""
        self.consumers.look_again()

    def _connect(self, head: Head) -> None:
        self.version = self._decoder.version = negotiate(head)
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
        self._sends.begin()
        self._tell_started()
        if can_send or wants:
            patience = can_send / 1000 * self._core.settings.stomp.heart_beat_grace
            self._heart_beat = HeartBeat(self._core, self, b"\n", wants / 1000, patience)

    def _claims(self, head: Head) -> bool:
        """Take the client id of CONNECT, which one connection may have; False if it has to wait for it."""
        client_id = head.headers.get("client-id")
        if not client_id:
            return True
        if self._decides_on(client_id, head):
            if self._must_wait_for_id(client_id):
                return False
            self._broker.routing.client_ids.claim(client_id, self)
        self.client_id = client_id
        return True

    def _decides_on(self, client_id: str, head: Head) -> bool:
        """Whether it is known here who has a client id."""
        return True

    def _tell_started(self) -> None:
        self._broker.advisories.connection_started(self, self.client_id)

    def _tell_stopped(self) -> None:
        self._broker.advisories.connection_stopped(self, self.client_id)

    def _connect_timed_out(self) -> None:
        seconds = self._core.settings.stomp.connect_timeout
        self.fail(ConnectionTimeout(f"no CONNECT frame within {seconds:g} s", seconds=seconds))

    def _disconnect(self, head: Head) -> None:
        self._leave("the consumer disconnected", lost=False)
        self._core.after_commit(self._goodbye)

    def _goodbye(self) -> None:
        """Everything the client sent is durable, and its receipts are written; or it is tried again."""
        broker = self._broker
        if broker.core.store_error is not None and not self.is_closed:
            # Not at once: commits without anything to store end at once, and this would go on without end.
            broker.core.scheduler.call_later(GOODBYE_AGAIN, lambda: broker.core.after_commit(self._goodbye))
            return
        self.flush()
        self._connection.close()

    def fail(self, error: QuireError, receipt: bytes | None = None) -> None:
        """Tell the client what went wrong and close."""
        if not self.is_closed:
            self.write(error_frame(error, self.version, receipt))
            self.end(error.code)

    def stop(self, error: QuireError) -> None:
        """The broker goes down: the consumers go in peace, and the client is told."""
        self._leave("the broker stopped", lost=False)
        self.fail(error)

    def closed(self) -> None:
        """The connection is gone, with or without a DISCONNECT before."""
        super().closed()
        self._state = State.CLOSED
        self._connect_timer.cancel()
        self._leave("the consumer's connection was lost", lost=not self.is_blameless)
        if self._has_connected:
            self._has_connected = False
            self._tell_stopped()

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
