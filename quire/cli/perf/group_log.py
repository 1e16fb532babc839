"""What consumers have got of numbered messages of message groups, and whether that keeps the promises about groups."""


class GroupLog:
    """Watches deliveries of the messages 0 to n - 1, which one producer sent in that order, to several consumers.

    Message n is number n // groups of the group n % groups. The log hears of acknowledgements and departures before
    the broker does, and of deliveries after it: so no two of them can pass each other.

    Args:
        messages: how many were sent.
        groups: how many groups they belong to, in turn.

    Attributes:
        received: how many different messages came.
        out_of_order: deliveries of another message of a group than the one that was due.
        at_two_consumers: deliveries while another consumer had unacknowledged messages of the group.
        redelivered: deliveries flagged as redelivered.
        duplicates: second and later deliveries that were flagged.
        unflagged_duplicates: those that were not.
    """

    def __init__(self, messages: int, groups: int) -> None:
        self._seen = bytearray(messages)
        self._groups = [_Group() for _ in range(groups)]
        self.received = 0
        self.out_of_order = 0
        self.at_two_consumers = 0
        self.redelivered = 0
        self.duplicates = 0
        self.unflagged_duplicates = 0

    @property
    def missing(self) -> int:
        """How many messages never came."""
        return len(self._seen) - self.received

    @property
    def every_group_goes_on(self) -> bool:
        """Whether each group has messages that have not come yet."""
        return max([group.due for group in self._groups]) < len(self._seen) // len(self._groups)

    def delivered(self, consumer: int, number: int, redelivered: bool) -> None:
        """A message has come.

        Args:
            consumer: who has got it; one that comes back is another consumer.
            number: its number.
            redelivered: whether it was flagged so.
        """
        index, name = divmod(number, len(self._groups))
        group = self._groups[name]
        self.at_two_consumers += group.held > 0 and group.consumer != consumer
        self.out_of_order += not group.earliest <= index <= group.due
        self.redelivered += redelivered
        if not self._seen[number]:
            self._seen[number] = 1
            self.received += 1
        elif redelivered:
            self.duplicates += 1
        else:
            self.unflagged_duplicates += 1
        group.delivered(consumer, index)

    def acknowledged(self, consumer: int, number: int) -> None:
        """A consumer is about to acknowledge a message."""
        index, name = divmod(number, len(self._groups))
        self._groups[name].acknowledged(consumer, index)

    def left(self, consumer: int, *, politely: bool) -> None:
        """A consumer is about to leave; what it has not acknowledged is due again.

        Args:
            consumer: who.
            politely: whether the broker has certainly seen its acknowledgements. Otherwise messages that it has
                acknowledged may be due as well.
        """
        for group in self._groups:
            group.left(consumer, politely)


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

    __slots__ = ("consumer", "due", "earliest", "first", "held", "settled")

    def __init__(self) -> None:
        self.consumer = -1
        self.first = self.held = self.settled = self.due = self.earliest = 0

    def delivered(self, consumer: int, index: int) -> None:
        if consumer != self.consumer:
            self.consumer, self.first, self.held = consumer, index, 0
        self.held += 1
        self.due = self.earliest = index + 1

    def acknowledged(self, consumer: int, index: int) -> None:
        if consumer == self.consumer:
            self.held -= 1
            self.settled = index + 1

    def left(self, consumer: int, politely: bool) -> None:
        if consumer == self.consumer:
            self.due = self.settled
            self.earliest = self.due if politely else min(self.first, self.due)
            self.consumer, self.held = -1, 0
