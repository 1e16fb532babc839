"""A subscription as its client sees it: what it may get, and in which order."""

from typing import Literal

from quire.testing.stepped import Frame
from tests.simulation.queues.promises import Promises, QueueSent
from tests.simulation.rules import Broken, Rule

AckMode = Literal["auto", "client", "client-individual"]

Order = tuple[str, str, int]
"""What a message is in order with."""


class Subscribed:
    """A subscription."""

    def __init__(
        self, promises: Promises, queue: str, *, ack: AckMode = "client", prefetch: int = 100, color: str = "",
        exclusive: bool = False, priority: int = 0,
    ) -> None:  # fmt: skip
        self.queue = queue
        self.ack = ack
        self.prefetch = prefetch
        self.color = color
        self.exclusive = exclusive
        self.priority = priority
        self.alone = False
        self.number = 0
        self.in_flight: dict[QueueSent, Frame] = {}
        self.held: dict[QueueSent, bool] = {}
        self.got_now: dict[QueueSent, bool] = {}
        self._promises = promises
        self._newest: dict[Order, QueueSent] = {}
        self._now: dict[Order, QueueSent] = {}

    def headers(self) -> dict[str, str]:
        """The headers of its SUBSCRIBE frame."""
        headers = {"activemq.prefetchSize": str(self.prefetch)}
        if self.color:
            headers["selector"] = f"color = '{self.color}'"
        if self.exclusive:
            headers["activemq.exclusive"] = "true"
        if self.priority:
            headers["activemq.priority"] = str(self.priority)
        return headers

    @property
    def free(self) -> list[QueueSent]:
        """What is in flight and not settled in the open transaction."""
        return [sent for sent in self.in_flight if sent not in self.held]

    @property
    def credit(self) -> int:
        """How many messages it may be given."""
        return self.prefetch - len(self.in_flight) + len(self.held)

    def wants(self, color: str) -> bool:
        """Whether its selector matches."""
        return self.color in ("", color)

    def covered(self, pick: int) -> list[QueueSent]:
        """What an acknowledgement of one of the free messages is about: in ``client`` mode all up to it."""
        free = self.free
        index = pick % len(free)
        return free[: index + 1] if self.ack == "client" else [free[index]]

    # What comes.

    def got(self, sent: QueueSent, frame: Frame) -> None:
        """A message came."""
        if not self.wants(sent.draft.color):
            raise Broken(Rule.SELECTOR, f"{sent} is {sent.draft.color or 'of no color'}, {self.color} is selected")
        is_fresh = frame.headers.get("redelivered") != "true"
        if self.queue == sent.queue:  # dead letters come as messages fail, in no order of their senders
            self._check_order(sent, is_fresh=is_fresh)
        self.got_now[sent] = is_fresh
        if self.ack != "auto":
            self.in_flight[sent] = frame

    def _check_order(self, sent: QueueSent, *, is_fresh: bool) -> None:
        """What comes at once is in order, what comes for the first time is, and all is if nobody else gets anything."""
        copy = sent.copy_in(self.queue)
        if not is_fresh and (copy.moved or not self._promises.keeps_place):
            return
        order = self._promises.order_of(sent)
        self._check_after(sent, self._now, order)
        if is_fresh or self.alone:
            self._check_after(sent, self._newest, order)

    def _check_after(
        self, sent: QueueSent, newest: dict[tuple[str, str, int], QueueSent], order: tuple[str, str, int]
    ) -> None:
        before = newest.get(order, sent)
        if before.number > sent.number:
            raise Broken(Rule.ORDER, f"{sent} came after {before}")
        newest[order] = sent

    def check_credit(self) -> None:
        """Is there no more in flight than may be?"""
        if self.credit < 0:
            raise Broken(Rule.CREDIT, f"{len(self.free)} messages of {self.queue} are in flight to one consumer")

    def take_fresh(self) -> list[QueueSent]:
        """What came since the last call for the first time."""
        came, self.got_now = self.got_now, {}
        self._now.clear()
        return [sent for sent, is_fresh in came.items() if is_fresh]
