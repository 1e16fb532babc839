"""What the ledger is told of retries: it speaks of their origins."""

from quire.broker.core.destination_ledger import DestinationLedger, LedgerLane
from quire.broker.streams.groups.retry_records import RetryMessage
from quire.ledger_block import LedgerEvent, Run
from quire.message import Message


class RetryLedger(DestinationLedger):
    """Notes events of a group's retries."""

    def __init__(self, ledger: LedgerLane, destination: str, subscriber: str, lanes: tuple[int, ...]) -> None:
        super().__init__(ledger, destination, subscriber)
        self._lanes = lanes

    def committing(self, messages: list[Message]) -> list[Run]:
        """Retries are no new messages."""
        return []

    def _note(
        self, event: LedgerEvent, messages: list[Message], who: str = "", flagged: list[int] | None = None
    ) -> None:  # fmt: skip
        for message in messages:
            if isinstance(message, RetryMessage):
                self._lane = self._lanes.index(message.origin_lane)
                origin = [message.origin_sequence, 1]
                is_flagged = event is LedgerEvent.DISPATCH and message.redelivered
                run = self._run(event, self._ledger.now_ms(), who, origin, origin if is_flagged else [])
                self._ledger.note(run)
