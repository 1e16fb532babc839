"""What a broker promises, as a ledger: what was sent, confirmed, delivered and settled, and what may not be then."""

from collections import Counter
from typing import NamedTuple

from quire.testing.stepped import Frame
from tests.simulation.jumping_clock import RightClock
from tests.simulation.queues.setup import QueueSetup
from tests.simulation.rules import Broken, Rule
from tests.simulation.sent import Outcome, Sent


class Copy:
    """One message in one queue: where it was sent, or where it is a dead letter."""

    __slots__ = (
        "failures", "failures_kept", "failures_most", "gone", "moved", "outcome", "settled_in", "written",
        "written_now",
    )  # fmt: skip

    def __init__(self) -> None:
        self.written = self.written_now = 0
        self.settled_in = -1
        self.gone = self.moved = False
        self.outcome: Outcome | None = None
        self.failures = self.failures_kept = self.failures_most = 0

    @property
    def is_settled(self) -> bool:
        """Whether a consumer was done with it."""
        return self.settled_in >= 0 or (self.outcome is not None and self.outcome.done is not False)

    def crash(self) -> None:
        """The broker forgot what was not confirmed."""
        self.written_now = 0
        self.failures = self.failures_kept


class Draft(NamedTuple):
    """What a client sends.

    Attributes:
        queue: where to.
        body: what follows its name in the body.
        persistent: whether it must survive a crash.
        expiration: when it may become a dead letter or vanish by itself, in milliseconds since the epoch; 0 for never.
        priority: 0 to 9.
        group: its message group; empty for none.
        color: a header that consumers select by.
    """

    queue: str
    body: bytes = b""
    persistent: bool = True
    expiration: int = 0
    priority: int = 4
    group: str = ""
    color: str = ""

    def headers(self) -> dict[str, str]:
        """The headers of its SEND frame."""
        headers = {
            "persistent": "" if self.persistent else "false", "expires": str(self.expiration or ""),
            "priority": str(self.priority), "JMSXGroupID": self.group, "color": self.color,
        }  # fmt: skip
        return {name: value for name, value in headers.items() if value}


class QueueSent(Sent):
    """One message of the world of queues.

    Attributes:
        epoch: in which of the broker's lives it was sent last.
        message_id: what the broker calls it, once it was seen.
        copies: by queue.
    """

    __slots__ = ("copies", "draft", "epoch", "message_id", "number", "producer", "queue")

    def __init__(self, producer: str, number: int, draft: Draft) -> None:
        super().__init__(f"{producer}-{number}")
        self.producer = producer
        self.number = number
        self.draft = draft
        self.queue = draft.queue
        self.epoch = 0
        self.message_id = ""
        self.copies: dict[str, Copy] = {}

    def copy_in(self, queue: str) -> Copy:
        """The message in a queue."""
        return self.copies.setdefault(queue, Copy())


class Promises:
    """The ledger."""

    def __init__(self, setup: QueueSetup, clock: RightClock) -> None:
        self.epoch = 0
        self.step = 0
        self.sent: dict[str, QueueSent] = {}
        self.back: dict[str, dict[QueueSent, int]] = {}
        self.keeps_place = not setup.redelivery_delay or setup.blocking_redelivery
        self._clock = clock
        self._setup = setup
        self._numbers: Counter[str] = Counter()

    def send(self, producer: str, draft: Draft) -> QueueSent:
        """A new message is about to be sent."""
        self._numbers[producer] += 1
        sent = QueueSent(producer, self._numbers[producer], draft)
        sent.epoch = self.epoch
        self.sent[sent.name] = sent
        return sent

    def crash(self) -> None:
        """The broker has crashed."""
        self.epoch += 1
        self.back.clear()
        for sent in self.sent.values():
            for copy in sent.copies.values():
                copy.crash()

    # Deliveries.

    def deliver(self, queue: str, frame: Frame) -> QueueSent:
        """A message was written to a consumer of a queue. May it have been?"""
        sent = self.sent[frame.body[: frame.body.index(b";")].decode()]
        copy = sent.copy_in(queue)
        self._check_route(sent, queue)
        self._check_settled(sent, copy, queue)
        self._check_flag(sent, copy, frame)
        if sent.message_id not in ("", frame.headers["message-id"]):
            raise Broken(Rule.ONCE, f"{sent} is stored as {sent.message_id} and as {frame.headers['message-id']}")
        sent.message_id = frame.headers["message-id"]
        copy.written += 1
        copy.written_now += 1
        self.back.get(queue, {}).pop(sent, None)
        return sent

    def _check_route(self, sent: QueueSent, queue: str) -> None:
        letters = self._setup.dead_letters(sent.queue)
        if queue == letters:
            if not sent.draft.expiration and not self._may_be_dead(sent):
                raise Broken(Rule.FAILED, f"{sent} is a dead letter, too early")
            if self._lives(sent) and not self._may_be_dead(sent):
                raise Broken(Rule.EXPIRED, f"{sent} has expired, too early")
        elif queue != sent.queue:
            raise Broken(Rule.ROUTE, f"{sent} came out of {queue}, it was sent to {sent.queue}")
        elif self._is_over(sent):
            raise Broken(Rule.EXPIRED, f"{sent} came out of {queue}")
        elif letters in sent.copies:
            raise Broken(Rule.AGAIN, f"{sent} came out of {queue}, it is a dead letter already")
        elif sent.copy_in(queue).failures > self._setup.maximum_redeliveries:
            raise Broken(Rule.FAILED, f"{sent} came again, it should be a dead letter")

    def _lives(self, sent: QueueSent) -> bool:
        """Whether a message expires, and its time has not come."""
        return sent.draft.expiration > self._clock.now_ms() and not self._clock.wrong.misled

    def _is_over(self, sent: QueueSent) -> bool:
        """Whether a message has expired, and the broker must know."""
        is_known = self._clock.wrong.ahead >= 0 and not self._clock.wrong.misled
        return 0 < sent.draft.expiration <= self._clock.now_ms() and is_known

    def _may_be_dead(self, sent: QueueSent) -> bool:
        return sent.copy_in(sent.queue).failures_most > self._setup.maximum_redeliveries

    def _check_settled(self, sent: QueueSent, copy: Copy, queue: str) -> None:
        if sent.outcome is not None:
            sent.outcome.decide(True, f"{sent} came out of {queue}")
        if copy.gone:
            raise Broken(Rule.AGAIN, f"{sent} came out of {queue} again, its acknowledgement was confirmed")
        if copy.settled_in == self.epoch:
            raise Broken(Rule.AGAIN, f"{sent} came out of {queue} again, its acknowledgement was taken")
        if copy.outcome is not None:
            copy.outcome.decide(False, f"{sent} came out of {queue} again")
            copy.outcome = None

    def _check_flag(self, sent: QueueSent, copy: Copy, frame: Frame) -> None:
        flagged = frame.headers.get("redelivered") == "true"
        if copy.written and not flagged:
            raise Broken(Rule.FLAG, f"{sent} came without a flag, it was written before")
        if flagged and int(frame.headers["JMSXDeliveryCount"]) <= copy.written_now:
            count = frame.headers["JMSXDeliveryCount"]
            raise Broken(Rule.FLAG, f"{sent} says it is delivered {count} times, but it was {copy.written_now + 1}")

    # What comes back.

    def order_of(self, sent: QueueSent) -> tuple[str, str, int]:
        """What a message is in order with: its producer's others of its message group and, by priority, its lane."""
        priority = sent.draft.priority if sent.queue in self._setup.prioritized else 0
        return sent.producer, sent.draft.group, priority

    def gave_back(self, queue: str, sent: QueueSent, *, rejected: bool) -> None:
        """A consumer gave a message back; it has to come again before later ones, if it does not die."""
        dies = queue == sent.queue and self._may_be_dead(sent)
        if rejected and self._setup.redelivery_delay and self._setup.redelivery_at == "tail":
            sent.copy_in(queue).moved = True
        elif not sent.draft.expiration and not dies and (self.keeps_place or not rejected):
            self.back.setdefault(queue, {})[sent] = self.step

    def check_came_before(self, queue: str, color: str, fresh: list[QueueSent]) -> None:
        """A consumer got messages, in this step and for the first time. Did any have to wait for others?"""
        for returned, step in self.back.get(queue, {}).items():
            for later in fresh:
                wants = color in ("", returned.draft.color)
                precedes = returned.number < later.number and self.order_of(returned) == self.order_of(later)
                if step < self.step and wants and precedes:
                    raise Broken(Rule.ORDER, f"{later} came before {returned}, which had come back")

    # The end.

    def check_nothing_lost(self) -> None:
        """When everything is consumed: was everybody done with every message that somebody must have got?"""
        for sent in self.sent.values():
            kept = sent.draft.persistent or (sent.epoch == self.epoch and not sent.draft.expiration)
            if sent.confirmed and kept and not any([copy.is_settled for copy in sent.copies.values()]):
                seen = "delivered, given back, and never again" if sent.copies else "never delivered"
                raise Broken(Rule.LOST, f"{sent} was confirmed and {seen}")
