"""What the ledger and a tracer are told of one destination. Without them nothing is asked."""

from typing import Protocol

from quire.broker.core.subscription import Session, Subscription
from quire.ledger_block import Ids, LedgerEvent, Run, ids_of, ranges_of, sent_of
from quire.message import Message


class LedgerLane(Protocol):
    def now_ms(self) -> int: ...

    def note(self, run: Run) -> None: ...


class DestinationLedger:
    """Notes events of one destination. A call is about many messages, and costs little more than for a single one.

    Args:
        subscriber: the durable subscription or the consumer group; empty if it is about the destination itself.
    """

    def __init__(self, ledger: LedgerLane, destination: str, subscriber: str = "", lane: int = 0) -> None:
        self._ledger = ledger
        self._destination = destination
        self._subscriber = subscriber
        self._lane = lane
        self._senders: list[tuple[str, int]] = []

    # Messages come.

    def sent(self, sender: Session | None) -> None:
        name = "" if sender is None else sender.name
        senders = self._senders
        if senders and senders[-1][0] == name:
            senders[-1] = (name, senders[-1][1] + 1)
        else:
            senders.append((name, 1))

    def committing(self, messages: list[Message]) -> list[Run]:
        """The open commit ends; what it says is true once it is done."""
        senders, self._senders = self._senders, []
        if sum([count for _, count in senders]) != len(messages):
            senders = [("", len(messages))]
        runs, start, now = [], 0, self._ledger.now_ms()
        for name, count in senders:
            run = messages[start : start + count]
            start += count
            sequences = ranges_of([message.sequence for message in run])
            runs.append(self._run(LedgerEvent.COMMIT, now, name, sequences, ids=ids_of(run), sent=sent_of(run)))
        return runs

    # They go.

    def dispatched(self, subscription: Subscription, messages: list[Message]) -> None:
        flagged = [message.sequence for message in messages if message.redelivered]
        self._note(LedgerEvent.DISPATCH, messages, _name(subscription), ranges_of(flagged))

    def acknowledged(self, messages: list[Message], subscription: Subscription | None = None) -> None:
        """A consumer is done with messages; of a topic, where each has its own, it is said which one."""
        self._note(LedgerEvent.ACKNOWLEDGE, messages, "" if subscription is None else _name(subscription))

    def came_back(self, messages: list[Message]) -> None:
        self._note(LedgerEvent.REDELIVER, messages)

    def returned(self, messages: list[Message]) -> None:
        self._note(LedgerEvent.RETURN, messages)

    def ended(self, messages: list[Message], reason: str) -> None:
        self._note(LedgerEvent.EXPIRE if reason == "expired" else LedgerEvent.DEAD_LETTER, messages)

    def removed(self, messages: list[Message]) -> None:
        self._note(LedgerEvent.REMOVE, messages)

    def _note(
        self, event: LedgerEvent, messages: list[Message], who: str = "", flagged: list[int] | None = None
    ) -> None:  # fmt: skip
        if messages:
            ranges = ranges_of([message.sequence for message in messages])
            self._ledger.note(self._run(event, self._ledger.now_ms(), who, ranges, flagged or []))

    def _run(
        self, event: LedgerEvent, time: int, who: str, ranges: list[int], flagged: list[int] | None = None,
        ids: Ids | None = None, sent: list[int] | None = None,
    ) -> Run:  # fmt: skip
        return Run(
            self._destination, event, time, who, self._subscriber, self._lane, ranges, flagged or [], ids or Ids(),
            sent or [],
        )  # fmt: skip


def _name(subscription: Subscription) -> str:
    return f"{subscription.session.name}/{subscription.id}"
