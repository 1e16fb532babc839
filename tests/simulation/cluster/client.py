"""The clients of a cluster. They do what the history says, and tell the ledger what they saw."""

from collections.abc import Callable, Sized

from tests.simulation.client import Note, SimulatedClient
from tests.simulation.cluster.promises import ClusterPromises, ClusterSent, Delivery
from tests.simulation.cluster.setup import TOPIC, header_of
from tests.simulation.cluster.stepped_shard import EntryClient
from tests.simulation.cluster.subscribed import ClusterSubscribed
from tests.simulation.sent import Outcome


class ClusterClient(SimulatedClient):
    """A client of a cluster, from one connection to its end.

    Args:
        unconfirmed: what it has sent over earlier connections and sends again; None if it does not number its sends.
    """

    connection: EntryClient

    def __init__(
        self, name: str, connection: EntryClient, promises: ClusterPromises, note: Note,
        unconfirmed: dict[ClusterSent, None] | None,
    ) -> None:  # fmt: skip
        super().__init__(name, connection, note)
        self.subscribed: ClusterSubscribed | None = None
        self._is_leaving = False
        self._said: list[ClusterSent] = []  # and nothing confirms it but the receipt of DISCONNECT
        self._settled_ones: list[dict[ClusterSent, Delivery]] = []  # the same
        self._subscriptions = 0  # old ones have other ids: what they still get is on its way
        self._promises = promises
        self._unconfirmed = unconfirmed
        self._producer = name if unconfirmed is not None else connection.connection.peer
        for sent in unconfirmed or ():
            self._send(sent, receipt=True)

    @property
    def is_stuck(self) -> bool:
        """Whether it can do nothing but wait or go."""
        return self.is_gone or self._is_leaving or bool(self.connection.connection.paused)

    # It hears.

    def read(self, *, on: bool) -> None:
        """Let its connection take output, or none."""
        if not self.is_gone:
            self.note(f"{self.name} reads {'on' if on else 'no more'}")
            self.connection.reads(on=on)

    def _take_messages(self) -> None:
        for frame in self.connection.take("MESSAGE"):
            sent, delivery = self._promises.deliver(self.connection.connection.peer, frame)
            self.note(f"{self.name} gets {sent} as {tuple(delivery)}")
            if self.subscribed is not None and frame.headers["subscription"] == str(self._subscriptions):
                self.subscribed.got(sent, frame, delivery)
                self.subscribed.check_credit()

    # It sends.

    def send(self, queue: str, size: int, *, receipt: bool) -> None:
        """Send a new message."""
        if self.is_stuck:
            return
        sent = self._promises.send(self._producer, queue, size)
        if self._unconfirmed is not None:
            self._unconfirmed[sent] = None
        self._send(sent, receipt=receipt or self._unconfirmed is not None)

    def _send(self, sent: ClusterSent, *, receipt: bool) -> None:
        headers: dict[str, str] = {}
        if self._unconfirmed is not None:
            headers |= {"producer-id": self.name, "producer-sequence": str(sent.number)}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self.receipt(lambda: self._taken(sent))
        else:
            self._said.append(sent)
        self.note(f"{self.name} sends {sent} to {sent.queue}, {sent.size} bytes, {headers}")
        headers["destination"] = header_of(sent.queue)
        self.connection.frame("SEND", headers, f"{sent};".encode() + b"x" * sent.size)

    def _taken(self, sent: ClusterSent) -> None:
        sent.receipted = True
        if self._unconfirmed is not None:
            del self._unconfirmed[sent]

    # It consumes.

    def subscribe(self, subscribed: ClusterSubscribed) -> None:
        """Subscribe. A client has one subscription at a time."""
        self.note(f"{self.name} subscribes to {subscribed.queue}, {subscribed.ack}, {subscribed.headers}")
        self.subscribed = subscribed
        self._subscriptions += 1
        headers = {"destination": header_of(subscribed.queue), "id": str(self._subscriptions), "ack": subscribed.ack}
        if subscribed.queue == TOPIC:
            headers |= {"activemq.subscriptionName": "s", **self.receipt(self._promises.keeps)}
            self._promises.may_keep()
        self.connection.frame("SUBSCRIBE", headers | subscribed.headers)

    @property
    def in_flight(self) -> Sized:
        """What it was given and has not settled."""
        return self.subscribed.in_flight if self.subscribed else ()

    @property
    def free(self) -> Sized:
        """What of that is not settled in its open transaction either."""
        return self.subscribed.free if self.subscribed else ()

    @property
    def is_auto(self) -> bool:
        """Whether what it is given is acknowledged by being sent: never, in this world."""
        return False

    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        """Acknowledge one of the free messages."""
        self.settle(pick, reject=False, receipt=receipt)

    def settle(self, pick: int, *, reject: bool, receipt: bool) -> None:
        """Acknowledge or reject what is in flight; acknowledge it in the open transaction if there is one."""
        subscribed = self.subscribed
        if subscribed is None or self.is_stuck or not subscribed.free:
            return
        covered = subscribed.covered(pick)
        frame = subscribed.in_flight[covered[-1]].frame
        if self._outcome is not None:
            self.note(f"{self.name} acknowledges {covered} in its transaction")
            subscribed.held |= dict.fromkeys(covered)
            self.connection.ack(frame, {"transaction": "t"})
            return
        self.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {covered}")
        settled = {sent: subscribed.in_flight.pop(sent).delivery for sent in covered}
        if reject:
            self.connection.nack(frame)
            return
        self._settled(settled, None)
        self._settled_ones.append(settled)
        self.connection.ack(frame, self.receipt(lambda: self._confirm(settled)) if receipt else {})

    def _settled(self, settled: dict[ClusterSent, Delivery], ending: Outcome | None) -> None:
        for sent, delivery in settled.items():
            self._promises.settle(sent, delivery, ending, self)

    def _confirm(self, settled: dict[ClusterSent, Delivery]) -> None:
        for sent, delivery in settled.items():
            self._promises.confirm(sent, delivery)

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction, if none is open. A producer that numbers its sends has none."""
        if self._unconfirmed is None:
            super().begin()

    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        subscribed = self.subscribed
        if subscribed is not None:
            held, subscribed.held = subscribed.held, {}
            settled = {sent: subscribed.in_flight.pop(sent).delivery for sent in held}
            if commit:
                self._settled(settled, outcome)
        act()

    # It goes.

    def leave(self, how: str) -> None:
        """Go: ``vanish``, ``disconnect`` and wait for the receipt, or ``unsubscribe`` and stay connected."""
        if how != "disconnect":
            super().leave(how)
            return
        self.listen()
        if self.is_stuck or self._is_leaving:
            return
        self.end(commit=False)
        self.note(f"{self.name} leaves: disconnect")
        self._is_leaving = True
        self.connection.frame("DISCONNECT", self.receipt(self._left))

    def _left(self) -> None:
        """Everything that it has said is done."""
        for sent in self._said:
            sent.receipted = True
        for settled in self._settled_ones:
            self._confirm(settled)

    def _unsubscribe(self) -> None:
        if self.subscribed is not None:
            self.end(commit=False)
            self.connection.frame("UNSUBSCRIBE", {"id": str(self._subscriptions)})
            self.subscribed = None

    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone."""
        self.forget()
