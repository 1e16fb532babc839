"""Some clients that belong together, and what they know."""

from collections.abc import Sequence

from tests.acceptance.crash.actors import Actor, Consumer, Producer
from tests.acceptance.crash.ledger import Ledger


class Flow:
    """The clients of one queue, or of a few that belong together.

    Args:
        producers: those that send.
        consumers: those that take.
        ledger: what they know.
        forwarded: what those know that take what was sent on.
    """

    def __init__(
        self, producers: Sequence[Actor], consumers: Sequence[Consumer], ledger: Ledger, forwarded: Ledger | None = None
    ) -> None:
        self.producers = producers
        self.consumers = consumers
        self.ledger = ledger
        self._forwarded = forwarded

    @property
    def ledgers(self) -> list[Ledger]:
        """All that is known."""
        return [self.ledger] + ([self._forwarded] if self._forwarded else [])

    @property
    def missing(self) -> int:
        """How many messages were confirmed and did not come."""
        if self._forwarded:
            self._forwarded.confirmed = set(self.ledger.received)
        return sum([len(ledger.missing) for ledger in self.ledgers])

    @property
    def unsettled(self) -> int:
        """How many messages have no confirmed acknowledgement."""
        return sum([consumer.unsettled for consumer in self.consumers])

    def check_end(self) -> None:
        """Look for what can be told only when all has come."""
        for producer in self.producers:
            if isinstance(producer, Producer) and producer.numbered:
                for ledger in self.ledgers:
                    ledger.check_once(producer.name)
            elif isinstance(producer, Producer):
                self.ledger.check_whole(producer.name, producer.transaction)
