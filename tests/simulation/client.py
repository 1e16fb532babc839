"""The clients of a simulation. They do what the history says, and tell the ledger what they saw."""

from collections.abc import Callable

from quire.testing.stepped import SteppedClient
from tests.simulation.life import Note
from tests.simulation.promises import Copy, Draft, Outcome, Promises, Sent
from tests.simulation.subscribed import Subscribed


class Client:
    """A client, from its connection to its end.

    Args:
        name: its name; a client that comes back has the same.
        connection: how it talks to the broker.
        promises: the ledger.
        note: writes the history.
        unconfirmed: what a producer that numbers its sends has to send again, in order; None if it does not number.

    Attributes:
        receipts: what each outstanding receipt confirms.
        subscribed: its subscription; None while it has none.
    """

    def __init__(
        self, name: str, connection: SteppedClient, promises: Promises, note: Note,
        unconfirmed: dict[Sent, None] | None,
    ) -> None:  # fmt: skip
        self.name = name
        self.connection = connection
        self.receipts: dict[str, Callable[[], None]] = {}
        self.subscribed: Subscribed | None = None
        self._promises = promises
        self._note = note
        self._unconfirmed = unconfirmed
        self._outcome: Outcome | None = None
        self._next_receipt = 0
        if unconfirmed:
            for sent in unconfirmed:
                sent.epoch = promises.epoch
                self._send(sent, receipt=True)

    @property
    def is_gone(self) -> bool:
        """Whether its connection is closed."""
        return self.connection.connection.closed

    @property
    def in_transaction(self) -> bool:
        """Whether it has a transaction open."""
        return self._outcome is not None

    @property
    def is_stuck(self) -> bool:
        """Whether it can do nothing but wait or go: it is held in a send, or gone."""
        return self.is_gone or self.connection.session.held

    # It hears.

    def read(self, *, on: bool) -> None:
        """Let its connection take output, or none. What it has taken is read at once."""
        if not self.is_gone:
            self._note(f"{self.name} reads {'on' if on else 'no more'}")
            self.connection.connection.is_writable = on
            if on:
                self.connection.session.output_drained()

    def listen(self) -> None:
        """Look at what has come since the last step."""
        if not self.connection.connection.output:
            return
        for receipt in self.connection.receipts():
            self._note(f"{self.name} gets receipt {receipt}")
            self.receipts.pop(receipt)()
        for code in self.connection.errors():
            self._note(f"{self.name} gets error {code}")
        if self.subscribed is not None:
            self._take(self.subscribed)

    def _take(self, subscribed: Subscribed) -> None:
        for frame in self.connection.take("MESSAGE"):
            sent = self._promises.deliver(subscribed.queue, frame)
            self._note(f"{self.name} gets {sent}{', again' if 'redelivered' in frame.headers else ''}")
            subscribed.got(sent, frame)
            if subscribed.ack == "auto":
                sent.copy_in(subscribed.queue).settled_in = self._promises.epoch
        subscribed.check_credit()

    # It sends.

    def send(self, draft: Draft, *, receipt: bool) -> None:
        """Send a new message.

        Args:
            draft: the message.
            receipt: whether to ask for one, outside a transaction.
        """
        if self.is_stuck:
            return
        if self._unconfirmed is not None:
            draft = draft._replace(persistent=True)
        sent = self._promises.send(self.name, draft)
        if self._unconfirmed is not None:
            self._unconfirmed[sent] = None
        self._send(sent, receipt=receipt or self._unconfirmed is not None)

    def _send(self, sent: Sent, *, receipt: bool) -> None:
        headers = sent.draft.headers()
        if self._unconfirmed is not None:
            headers |= {"producer-id": self.name, "producer-sequence": str(sent.number)}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self._receipt(lambda: self._taken(sent))
        self._note(f"{self.name} sends {sent} to {sent.queue}, {len(sent.draft.body)} bytes, {headers}")
        self.connection.send(sent.queue, f"{sent};".encode() + sent.draft.body, headers)

    def _taken(self, sent: Sent) -> None:
        sent.receipted = True
        if self._unconfirmed is not None:
            del self._unconfirmed[sent]

    def _receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        self._next_receipt += 1
        self.receipts[f"r{self._next_receipt}"] = confirmed
        return {"receipt": f"r{self._next_receipt}"}

    # It consumes.

    def subscribe(self, subscribed: Subscribed) -> None:
        """Subscribe. A client has one subscription at a time."""
        headers = subscribed.headers()
        self._note(f"{self.name} subscribes to {subscribed.queue}, {subscribed.ack}, {headers}")
        self.subscribed = subscribed
        self.connection.subscribe(subscribed.queue, subscribed.ack, headers=headers)

    def settle(self, pick: int, *, reject: bool, receipt: bool) -> None:
        """Acknowledge or reject what is in flight, in the open transaction if there is one.

        Args:
            pick: which message, counted around.
            reject: whether to reject.
            receipt: whether to ask for one, outside a transaction.
        """
        subscribed = self.subscribed
        if subscribed is None or self.is_stuck or not subscribed.free:
            return
        covered = subscribed.covered(pick)
        frame = subscribed.in_flight[covered[-1]]
        copies = [sent.copy_in(subscribed.queue) for sent in covered]
        self._note(f"{self.name} {'rejects' if reject else 'acknowledges'} {covered}")
        send = self.connection.nack if reject else self.connection.ack
        if self._outcome is not None:
            subscribed.held |= dict.fromkeys(covered, reject)
            send(frame, {"transaction": "t"})
            return
        headers = {}
        if receipt:
            failures = [copy.failures + 1 if reject else 0 for copy in copies]
            headers = self._receipt(lambda: self._confirm(copies, failures))
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

    def _reject(self, subscribed: Subscribed, messages: list[Sent], act: Callable[[], None]) -> None:
        """Have deliveries of messages failed by an act of the client."""
        subscribed.alone = False
        copies = [sent.copy_in(subscribed.queue) for sent in messages]
        for copy in copies:
            copy.failures_most += 1
        act()
        for sent, copy in zip(messages, copies, strict=True):
            copy.failures += 1
            self._promises.gave_back(subscribed.queue, sent, rejected=True)

    def settle_all(self) -> bool:
        """Acknowledge everything there is, and commit it.

        Returns:
            Whether there was anything.
        """
        found = self.in_transaction or bool(self.subscribed and self.subscribed.in_flight)
        while self.subscribed and self.subscribed.free and not self.is_stuck:
            self.settle(len(self.subscribed.free) - 1, reject=False, receipt=False)
        self.end(commit=True)
        return found

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction, if none is open. A producer that numbers its sends has none."""
        if self._outcome is None and self._unconfirmed is None and not self.is_stuck:
            self._note(f"{self.name} begins a transaction")
            self._outcome = Outcome()
            self.connection.frame("BEGIN", {"transaction": "t"})

    def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction, if one is open."""
        if self._outcome is None or self.is_stuck:
            return
        outcome, self._outcome = self._outcome, None
        self._note(f"{self.name} {'commits' if commit else 'aborts'}")
        headers = {"transaction": "t"}
        if commit:
            headers |= self._receipt(lambda: outcome.decide(True, f"{self.name} has the receipt"))
        else:
            outcome.decide(False, f"{self.name} aborts")
        self._end(outcome, lambda: self.connection.frame("COMMIT" if commit else "ABORT", headers), commit=commit)

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

    def leave(self, how: str) -> None:
        """Go.

        Args:
            how: ``vanish``, ``disconnect``, or ``unsubscribe`` and stay connected.
        """
        self._note(f"{self.name} leaves: {how}")
        self.listen()
        if how == "vanish":
            self._lose(self.connection.vanish)
        elif self.is_stuck:
            return
        elif how == "disconnect":
            self.connection.frame("DISCONNECT")
            self.connection.vanish()
            self._give_back(failed=0)
            self.forget()
        elif self.subscribed is not None:
            self.end(commit=False)
            self.connection.frame("UNSUBSCRIBE", {"id": "0"})
            self._give_back(failed=0)
            self.subscribed = None

    def closed(self) -> None:
        """The broker has closed the connection."""
        self._lose(lambda: None)

    def _lose(self, act: Callable[[], None]) -> None:
        """The connection is lost by an act: the oldest message in flight counts as failed."""
        if self.subscribed is not None and self.subscribed.in_flight:
            oldest = next(iter(self.subscribed.in_flight)).copy_in(self.subscribed.queue)
            oldest.failures_most += 1
            act()
            self._give_back(failed=1)
        else:
            act()
        self.forget()

    def _give_back(self, failed: int) -> None:
        if self.subscribed is None:
            return
        in_flight, self.subscribed.in_flight = self.subscribed.in_flight, {}
        for sent in list(in_flight)[:failed]:
            sent.copy_in(self.subscribed.queue).failures += 1
        for sent in in_flight:
            self._promises.gave_back(self.subscribed.queue, sent, rejected=False)

    def die(self) -> None:
        """The broker has crashed."""
        if self.subscribed is not None and self.subscribed.ack == "auto":
            # Their acknowledgement may be written already. What a crash loses on the way is a risk of this mode.
            self.connection.session.flush()
        self.listen()
        self.connection.connection.closed = True
        self.forget()

    def forget(self) -> None:
        """The connection is gone: what was not committed is not done, no receipt will come."""
        if self._outcome is not None:
            self._outcome.decide(False, f"{self.name} is gone")
            self._outcome = None
        self.receipts.clear()
