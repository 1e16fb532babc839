"""The clients of queues. They do what the history says, and tell the ledger what they saw."""

from collections.abc import Callable, Sized

from quire.testing.stepped import SteppedClient
from tests.simulation.client import Note, SimulatedClient
from tests.simulation.queues.promises import Copy, Draft, Promises, QueueSent
from tests.simulation.queues.subscribed import Subscribed
from tests.simulation.sent import Outcome


class Client(SimulatedClient):
    """A client of queues."""

    def __init__(
        self, name: str, connection: SteppedClient, promises: Promises, note: Note,
        unconfirmed: dict[QueueSent, None] | None,
    ) -> None:  # fmt: skip
        super().__init__(name, connection, note)
        self.subscribed: Subscribed | None = None
        self._promises = promises
        self._unconfirmed = unconfirmed
        if unconfirmed:
            for sent in unconfirmed:
                sent.epoch = promises.epoch
                self._send(sent, receipt=True)

    # It hears.

    def _take_messages(self) -> None:
        if self.subscribed is not None:
            self._take(self.subscribed)

    def _take(self, subscribed: Subscribed) -> None:
        for frame in self.connection.take("MESSAGE"):
            sent = self._promises.deliver(subscribed.queue, frame)
            self.note(f"{self.name} gets {sent}{', again' if 'redelivered' in frame.headers else ''}")
            subscribed.got(sent, frame)
            if subscribed.ack == "auto":
                sent.copy_in(subscribed.queue).settled_in = self._promises.epoch
        subscribed.check_credit()

    # It sends.

    def send(self, draft: Draft, *, receipt: bool) -> None:
        """Send a new message."""
        if self.is_stuck:
            return
        if self._unconfirmed is not None:
            draft = draft._replace(persistent=True)
        sent = self._promises.send(self.name, draft)
        if self._unconfirmed is not None:
            self._unconfirmed[sent] = None
        self._send(sent, receipt=receipt or self._unconfirmed is not None)

    def _send(self, sent: QueueSent, *, receipt: bool) -> None:
        headers = sent.draft.headers()
        if self._unconfirmed is not None:
            headers |= {"producer-id": self.name, "producer-sequence": str(sent.number)}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self.receipt(lambda: self._taken(sent))
        self.note(f"{self.name} sends {sent} to {sent.queue}, {len(sent.draft.body)} bytes, {headers}")
        self.connection.send(sent.queue, f"{sent};".encode() + sent.draft.body, headers)

    def _taken(self, sent: QueueSent) -> None:
        sent.receipted = True
        if self._unconfirmed is not None:
            del self._unconfirmed[sent]

    # It consumes.

    def subscribe(self, subscribed: Subscribed) -> None:
        """Subscribe. A client has one subscription at a time."""
        headers = subscribed.headers()
        self.note(f"{self.name} subscribes to {subscribed.queue}, {subscribed.ack}, {headers}")
        self.subscribed = subscribed
        self.connection.subscribe(subscribed.queue, subscribed.ack, headers=headers)

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
        """Whether what it is given is acknowledged by being sent."""
        return self.subscribed is not None and self.subscribed.ack == "auto"

    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        """Acknowledge one of the free messages."""
        self.settle(pick, reject=False, receipt=receipt)

    def settle(self, pick: int, *, reject: bool, receipt: bool) -> None:
        """Acknowledge or reject what is in flight, in the open transaction if there is one."""
        subscribed = self.subscribed
        if subscribed is None or self.is_stuck or not subscribed.free:
            return
        covered = subscribed.covered(pick)
        frame = subscribed.in_flight[covered[-1]]
        copies = [sent.copy_in(subscribed.queue) for sent in covered]
        self.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {covered}")
        send = self.connection.nack if reject else self.connection.ack
        if self._outcome is not None:
            subscribed.held |= dict.fromkeys(covered, reject)
            send(frame, {"transaction": "t"})
            return
        headers = {}
        if receipt:
            failures = [copy.failures + 1 if reject else 0 for copy in copies]
            headers = self.receipt(lambda: self._confirm(copies, failures))
        for sent in covered:
            del subscribed.in_flight[sent]
        if reject:
            self._reject(subscribed, covered, lambda: send(frame, headers))
        else:
            send(frame, headers)
            self._acknowledged(copies)

    def _acknowledged(self, copies: list[Copy]) -> None:
        for copy in copies:
            copy.settled_in = self._promises.epoch

    def _confirm(self, copies: list[Copy], failures: list[int]) -> None:
        for copy, count in zip(copies, failures, strict=True):
            if count:
                copy.failures_kept = max(copy.failures_kept, count)
            else:
                copy.gone = True

    def _reject(self, subscribed: Subscribed, messages: list[QueueSent], act: Callable[[], None]) -> None:
        """Have deliveries of messages failed by an act of the client."""
        subscribed.alone = False
        copies = [sent.copy_in(subscribed.queue) for sent in messages]
        for copy in copies:
            copy.failures_most += 1
        act()
        for sent, copy in zip(messages, copies, strict=True):
            copy.failures += 1
            self._promises.gave_back(subscribed.queue, sent, rejected=True)

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction, if none is open. A producer that numbers its sends has none."""
        if self._unconfirmed is None:
            super().begin()

    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        """End the transaction by an act. What was acknowledged in an aborted one has failed."""
        subscribed = self.subscribed
        if subscribed is None:
            act()
            return
        held, subscribed.held = subscribed.held, {}
        for sent, rejected in held.items():
            del subscribed.in_flight[sent]
            if commit and not rejected:
                sent.copy_in(subscribed.queue).outcome = outcome
        subscribed.alone = False  # a transaction that fails brings earlier messages back
        self._reject(subscribed, [sent for sent, rejected in held.items() if rejected or not commit], act)

    # It goes.

    def _unsubscribe(self) -> None:
        if self.subscribed is not None:
            self.end(commit=False)
            self.connection.frame("UNSUBSCRIBE", {"id": "0"})
            self._give_back(failed=0)
            self.subscribed = None

    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone. Without a word: the oldest message in flight counts as failed."""
        self._give_back(failed=int(lost))
        self.forget()

    def _give_back(self, failed: int) -> None:
        if self.subscribed is None:
            return
        in_flight, self.subscribed.in_flight = self.subscribed.in_flight, {}
        for sent in list(in_flight)[:failed]:
            copy = sent.copy_in(self.subscribed.queue)
            copy.failures_most += 1
            copy.failures += 1
        for sent in in_flight:
            self._promises.gave_back(self.subscribed.queue, sent, rejected=False)
