"""What a sender knows of what it sent: whether it was taken, and whether its transaction was done."""

from tests.simulation.rules import Broken, Rule


class Outcome:
    """What became of a transaction, as far as a client can see it: done, not done, or not known yet."""

    def __init__(self) -> None:
        self.done: bool | None = None

    def decide(self, done: bool, seen: str) -> None:
        """Something shows what became of it; it is broken if something else has shown the opposite."""
        if self.done is (not done):
            raise Broken(Rule.WHOLE, f"{seen}: is its transaction done or not?")
        self.done = done


class Sent:
    """One message as its sender knows it.

    Attributes:
        receipted: whether its receipt has come.
        outcome: what becomes of the transaction it was sent in, if it was.
    """

    __slots__ = ("name", "outcome", "receipted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.receipted = False
        self.outcome: Outcome | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def confirmed(self) -> bool:
        """Whether its sender knows that it was taken."""
        return self.receipted or (self.outcome is not None and self.outcome.done is True)
