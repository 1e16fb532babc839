"""A STOMP client's session in a process of a cluster: what concerns other shards is passed on to their owners."""

from collections.abc import Callable, Iterator

from quire.broker.broker import Broker
from quire.broker.dead_letter import LETTER_HEADERS, ORIGIN
from quire.broker.routing.temporary import REPLY_TO, OwnTemporaries
from quire.cluster.cluster_map import FRONT, lost_to_another
from quire.destination import Destination
from quire.errors import LimitExceeded, QuireError
from quire.protocols.stomp.decoder import Event
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.passed_frames import head_lines, header_of, passed_frame
from quire.protocols.stomp.states import State, check_required, next_state
from quire.security import Principal
from quire.server.cluster.front_temporaries import FrontTemporaries
from quire.server.cluster.links import Links
from quire.server.cluster.relay_acknowledgements import RelayAcknowledgements
from quire.server.cluster.relay_subscriptions import RelaySubscriptions
from quire.server.cluster.relay_transactions import HERE, RelayTransactions
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.stomp_relay import Outcome, StompRelay
from quire.server.cluster.stomp_shard import StompShard
from quire.server.connection import Connection
from quire.server.stomp.stomp_consumers import PULL
from quire.server.stomp.stomp_sends import MAX_ROUTES
from quire.server.stomp.stomp_session import StompSession
from quire.sessions.rights import Gate

_OWN_NAMES = ("/temp-queue/", "/temp-topic/")


class RelaySession(StompSession):
    """One client. A frame that was seen before and is of the own shard never comes here: it costs nothing more."""

    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, links: Links, shared: ShardTransactions
    ) -> None:
        super().__init__(broker, gate, connection)
        self._shared = shared
        self.door = connection.visitor.door
        self._links = links
        if links.cluster_map.own == FRONT:
            self.temporaries = OwnTemporaries(FrontTemporaries())
        self._relay = relay = StompRelay(links, self)
        self._subscribed = RelaySubscriptions(relay, lambda: self._core.settings.policies)
        self._begun = RelayTransactions(relay, self)
        self._acknowledgements = self._passed_acks = RelayAcknowledgements(
            self._table, relay, self._subscribed, self._begun
        )
        self._passed: dict[Head, tuple[StompShard, bytes]] = {}  # SEND frames of other shards, by heads that were seen
        self._alike: dict[Head, tuple[int, bytes, StompShard]] = {}  # by the head that others are like
        self._generation = links.generation
        self._waits_for_shards = False
        self._relayed: dict[bytes, Callable[[Head, bytes | None, bytes | bytearray], Outcome]] = {
            b"SEND": self._pass_send, b"SUBSCRIBE": lambda head, receipt, _: self._subscribed.subscribe(head, receipt),
            b"UNSUBSCRIBE": lambda head, receipt, _: self._subscribed.unsubscribe(head, receipt),
            b"ACK": lambda head, receipt, _: self._passed_acks.take(head, receipt),
            b"NACK": lambda head, receipt, _: self._passed_acks.take(head, receipt),
            b"BEGIN": lambda head, receipt, _: self._begun.begin(head),
            b"COMMIT": lambda head, receipt, _: self._begun.end(head, receipt),
            b"ABORT": lambda head, receipt, _: self._begun.end(head, receipt),
            b"DISCONNECT": lambda head, receipt, _: self._pass_disconnect(head),
        }  # fmt: skip

    # The relay calls these.

    @property
    def principal(self) -> Principal:
        """Who it is."""
        return self.guard.access.principal

    @property
    def takes_output(self) -> bool:
        """Whether its connection takes output now."""
        return self._connection.is_writable

    def go_on(self) -> None:
        """Take input that waits for the relay: in a step, since many clients may wait for one shard."""
        if self._waits_for_shards and not self.is_closed:
            self._waits_for_shards = False
            self._core.steps.add(self._go_on, "input that waited for a shard", stores=False)

    def begin_own(self, head: Head) -> None:
        """Begin the part of a transaction that is here."""
        self._transactions.begin(head)

    def step_own(self, name: str, step: str, then: Callable[[], None]) -> bool:
        """Make a step of a transaction over several shards, for the part that is here; False if it has to wait."""
        transaction = self._transactions.named(name)
        if self.must_gather(transaction):
            return False
        if self._shared.step(step, self, transaction, then):
            self._transactions.forget(name)
        return True

    def refused(self, frame: bytes) -> None:
        """Pass on the error that an owner has told, and close."""
        if not self.is_closed:
            self.write(frame)
            self.end((header_of(frame, b"code") or b"").decode())

    # Input.

    def _process(self, events: list[Event], end: float) -> None:
        """Do what frames say; what shards take no more of waits."""
        super()._process(events, end)
        if self._relay.shards and not self.is_closed:
            if self._relay.is_over_limit:
                self.fail(LimitExceeded("what clients have sent to shards that do not take it is more than it may be"))
            elif not (self.held or self._relay.has_room(self._relay.shards)):
                self._wait_for_shards([])

    def _other(self, head: Head, receipt: bytes | None, body: bytes | bytearray, receipts: list[bytes]) -> bool:
        """Do what a frame says that is more than a plain one of the own shard; false if it has to wait."""
        relayed = self._relayed.get(head.command) if self._state is State.CONNECTED else None
        if relayed is None:
            return super()._other(head, receipt, body, receipts)
        next_state(self._state, head.command)
        check_required(head, self.version)
        if head.command in (b"ACK", b"NACK"):
            head = self._passed_acks.without_own_prefix(head)
        outcome = relayed(head, receipt, body)
        if outcome is Outcome.OWN:
            is_done = super()._other(head, receipt, body, receipts)
            if is_done and head.command in (b"COMMIT", b"ABORT"):
                self._begun.ended(head.headers["transaction"])
            return is_done
        if outcome is Outcome.DONE and receipt is not None:
            receipts.append(receipt)
        self._waits_for_shards = outcome is Outcome.WAITS
        return outcome is not Outcome.WAITS

    def _wait_for_shards(self, events: list[Event]) -> None:
        self._waits_for_shards = True
        self._wait(events)

    # SEND.

    def _pass_send(self, head: Head, receipt: bytes | None, body: bytes | bytearray) -> Outcome:
        """A SEND frame of another shard is passed on."""
        if self._generation != self._links.generation:
            self._generation = self._links.generation
            self._passed.clear()
            self._alike.clear()
        known = self._passed.get(head)
        if known is None and head.base is not None and (similar := self._alike.get(head.base)) is not None:
            place, line, shard = similar
            if head.lines[place] == line:
                known = shard, head_lines(head, self.version)
        if known is None:
            return self._find(head, receipt, body)
        shard, lines = known
        if shard.connection.is_full:
            return Outcome.WAITS
        shard.connection.write(passed_frame(lines, receipt, body))
        return Outcome.PASSED

    def _find(self, head: Head, receipt: bytes | None, body: bytes | bytearray) -> Outcome:
        """A SEND frame whose head was not seen before, or not of a kind that is remembered."""
        relay, headers = self._relay, head.headers
        if headers["destination"].startswith(PULL):
            return self._subscribed.pull(head, receipt)
        parts = relay.parts(headers["destination"])
        numbers = [number for number, _ in parts]
        if not relay.has_room(numbers):
            return Outcome.WAITS
        transaction = headers.get("transaction")
        is_own = numbers == [relay.own]
        if transaction is not None:
            places = [self._begun.place(transaction, numbers[0])] if len(numbers) == 1 else numbers
            for place in places:
                self._begun.join(transaction, place)
            is_own = places == [HERE]
        if is_own:
            return Outcome.OWN
        changes: dict[str, str | None] = dict.fromkeys(LETTER_HEADERS & headers.keys())
        if relay.own == FRONT and "/temp-" in headers["destination"]:
            changes["destination"] = self.temporaries.remote_text(headers["destination"])
        if headers.get(REPLY_TO, "").startswith(_OWN_NAMES):
            changes[REPLY_TO] = self.temporaries.remote_reply_to(headers[REPLY_TO])
        if len(parts) > 1:
            origin = {ORIGIN: headers["destination"]}
            frames = {number: {**changes, **origin, "destination": part} for number, part in parts}
            return relay.pass_to_all(frames, head, receipt, body)
        shard, lines = relay.shard(numbers[0]), head_lines(head, self.version, changes)
        shard.connection.write(passed_frame(lines, receipt, body))
        if transaction is None:
            self._learn(head, shard, lines, is_changed=bool(changes))
        return Outcome.PASSED

    def _learn(self, head: Head, shard: StompShard, lines: bytes, *, is_changed: bool) -> None:
        """Remember where frames with a head go, or with heads that are like one."""
        if len(self._passed) + len(self._alike) >= MAX_ROUTES:
            self._passed.clear()
            self._alike.clear()
        base = head.base
        if base is None:
            self._passed[head] = shard, lines
        elif not is_changed and not {"transaction", REPLY_TO} & base.headers.keys():
            place = next(place for place, line in enumerate(head.lines) if line.startswith(b"destination:"))
            self._alike[base] = place, head.lines[place], shard

    # The connection's life.

    def recheck(self) -> Iterator[None]:
        """Rules have changed, or where destinations are: end what the client may not have any more."""
        yield from super().recheck()
        moved = None if self.is_closed else self._subscribed.moved()
        if moved is not None:
            self.fail(moved)

    def _lost(self, destination: Destination) -> QuireError | None:
        return super()._lost(destination) or lost_to_another(self._links.cluster_map, destination)

    def _must_wait_for_login(self, head: Head) -> bool:
        """Whether CONNECT has to wait: for the login, or for the shard that knows who has the client id."""
        if super()._must_wait_for_login(head):
            return True
        client_id = head.headers.get("client-id")
        if not client_id or (number := self._links.cluster_map.shard_of_client(client_id)) == self._relay.own:
            return False
        self.client_id = client_id
        self._waits_for_shards = not self._relay.shard(number).is_connected
        return self._waits_for_shards

    def _decides_on(self, client_id: str, head: Head) -> bool:
        """Whether this is the shard that knows who has a client id."""
        return self._links.cluster_map.shard_of_client(client_id) == self._relay.own

    def _pass_disconnect(self, head: Head) -> Outcome:
        """The client leaves when all shards have done what it has said before."""
        return Outcome.WAITS if self._relay.must_leave(head) else Outcome.OWN

    def _leave(self, cause: str, *, lost: bool) -> None:
        super()._leave(cause, lost=lost)
        self._passed.clear()
        self._alike.clear()
        self._relay.leave(lost=lost, is_blameless=self.is_blameless)

    def output_drained(self) -> None:
        """The transport takes output again."""
        super().output_drained()
        self._relay.pay()
