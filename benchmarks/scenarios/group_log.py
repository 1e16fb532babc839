"""What consumers have got of numbered messages of message groups, and whether that keeps the promises about groups."""

from dataclasses import dataclass

from benchmarks.scenarios.number_log import NumberLog


class GroupLog(NumberLog):
    """Watches deliveries of messages that one producer sent in the order of their numbers, to several consumers.

    Message n is number n // groups of the group n % groups; what is not the message of its group that was due is out of
    order. The log hears of acknowledgements and departures before the broker does, and of deliveries after it: so no
    two of them can pass each other. A consumer that comes back is another consumer.

    Attributes:
        at_two_consumers: deliveries while another consumer had unacknowledged messages of the group.
    """

    def __init__(self, messages: int, groups: int) -> None:
        super().__init__(messages)
        self._groups = [_Group() for _ in range(groups)]
        self.at_two_consumers = 0

    @property
    def every_group_goes_on(self) -> bool:
        """Whether each group has messages that have not come yet."""
        return max([group.due for group in self._groups]) < self.messages // len(self._groups)

    def delivered(self, consumer: int, number: int, redelivered: bool) -> None:
        """A message has come."""
        index, name = divmod(number, len(self._groups))
        group = self._groups[name]
        self.at_two_consumers += group.held > 0 and group.consumer != consumer
        self.out_of_order += not group.earliest <= index <= group.due
        self.count(number, redelivered)
        group.delivered(consumer, index)

    def acknowledged(self, consumer: int, number: int) -> None:
        """A consumer is about to acknowledge a message."""
        index, name = divmod(number, len(self._groups))
        self._groups[name].acknowledged(consumer, index)

    def left(self, consumer: int, *, confirmed: bool) -> None:
        """A consumer is about to leave; what it has not acknowledged is due again.

        What it has acknowledged may be due as well, unless the broker has certainly seen that.
        """
        for group in self._groups:
            group.left(consumer, confirmed)


@dataclass(slots=True)
class _Group:
    """One group.

    Attributes:
        consumer: who has got its last message.
        first: the first message that consumer has got.
        held: how many of its messages the consumer has not acknowledged.
        settled: how many of its messages were acknowledged.
        due: which message must come next.
        earliest: from which one on earlier ones may come instead.
    """

    consumer: int = -1
    first: int = 0
    held: int = 0
    settled: int = 0
    due: int = 0
    earliest: int = 0

    def delivered(self, consumer: int, index: int) -> None:
        if consumer != self.consumer:
            self.consumer, self.first, self.held = consumer, index, 0
        self.held += 1
        self.due = self.earliest = index + 1

    def acknowledged(self, consumer: int, index: int) -> None:
        if consumer == self.consumer:
            self.held -= 1
            self.settled = index + 1

    def left(self, consumer: int, confirmed: bool) -> None:
        if consumer == self.consumer:
            self.due = self.settled
            self.earliest = self.due if confirmed else min(self.first, self.due)
            self.consumer, self.held = -1, 0
