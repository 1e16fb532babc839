"""A client of any world, from its connection to its end. It does what the history says, and tells what it saw."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sized

from quire.testing.stepped import SteppedClient
from tests.simulation.sent import Outcome

Note = Callable[[str], None]
"""Writes down what happens."""


class SimulatedClient(ABC):
    """What all clients do."""

    def __init__(self, name: str, connection: SteppedClient, note: Note) -> None:
        self.name = name
        self.connection = connection
        self.receipts: dict[str, Callable[[], None]] = {}
        self.note = note
        self._outcome: Outcome | None = None
        self._next_receipt = 0

    @property
    def is_gone(self) -> bool:
        """Whether its connection is closed."""
        return self.connection.connection.closed

    @property
    def is_stuck(self) -> bool:
        """Whether it can do nothing but wait or go: it is held in a send, or gone."""
        return self.is_gone or self.connection.session.held

    @property
    def in_transaction(self) -> bool:
        """Whether it has a transaction open."""
        return self._outcome is not None

    # It hears.

    def read(self, *, on: bool) -> None:
        """Let its connection take output, or none. What it has taken is read at once."""
        if not self.is_gone:
            self.note(f"{self.name} reads {'on' if on else 'no more'}")
            self.connection.connection.is_writable = on
            if on:
                self.connection.session.output_drained()

    def listen(self) -> None:
        """Look at what has come since the last step."""
        if not self.connection.connection.output:
            return
        for receipt in self.connection.receipts():
            self.note(f"{self.name} gets receipt {receipt}")
            self.receipts.pop(receipt)()
        for code in self.connection.errors():
            self.note(f"{self.name} gets error {code}")
        self._take_messages()

    @abstractmethod
    def _take_messages(self) -> None:
        """Look at the messages that have come."""

    def receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        """The header that asks for a receipt, which confirms something."""
        self._next_receipt += 1
        self.receipts[f"r{self._next_receipt}"] = confirmed
        return {"receipt": f"r{self._next_receipt}"}

    # It settles.

    @property
    @abstractmethod
    def in_flight(self) -> Sized:
        """What it was given and has not settled."""

    @property
    @abstractmethod
    def free(self) -> Sized:
        """What of that is not settled in its open transaction either."""

    @property
    @abstractmethod
    def is_auto(self) -> bool:
        """Whether what it is given is acknowledged by being sent."""

    @abstractmethod
    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        """Acknowledge one of the free messages, counted around, in the open transaction if there is one."""

    def settle_all(self) -> bool:
        """Acknowledge everything there is, and commit it. Was there anything?"""
        found = self.in_transaction or len(self.in_flight) > 0
        while len(self.free) and not self.is_stuck:
            self.acknowledge(len(self.free) - 1, receipt=False)
        self.end(commit=True)
        return found

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction, if none is open."""
        if self._outcome is None and not self.is_stuck:
            self.note(f"{self.name} begins a transaction")
            self._outcome = Outcome()
            self.connection.frame("BEGIN", {"transaction": "t"})

    def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction, if one is open."""
        if self._outcome is None or self.is_stuck:
            return
        outcome, self._outcome = self._outcome, None
        self.note(f"{self.name} {'commits' if commit else 'aborts'}")

        def act() -> None:
            headers = {"transaction": "t"}
            if commit:
                headers |= self.receipt(lambda: outcome.decide(True, f"{self.name} has the receipt"))
            else:
                outcome.decide(False, f"{self.name} aborts")
            self.connection.frame("COMMIT" if commit else "ABORT", headers)

        self._end(outcome, act, commit=commit)

    @abstractmethod
    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        """End the transaction by an act: what was settled in it is, or is not."""

    # It goes.

    def leave(self, how: str) -> None:
        """Go: ``vanish``, ``disconnect``, or ``unsubscribe`` and stay connected."""
        self.listen()
        if how != "vanish" and self.is_stuck:
            return
        self.note(f"{self.name} leaves: {how}")
        if how == "unsubscribe":
            self._unsubscribe()
            return
        if how == "disconnect":
            self.connection.frame("DISCONNECT")
        self.connection.vanish()
        self.closed(lost=how == "vanish")

    @abstractmethod
    def _unsubscribe(self) -> None:
        """End its subscription, if it has one."""

    @abstractmethod
    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone, without a word or with one."""

    def die(self) -> None:
        """The broker has crashed."""
        if self.is_auto:
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
