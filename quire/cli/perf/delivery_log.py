"""What a consumer has got of numbered messages, and whether that keeps the promises about loss and order."""


class DeliveryLog:
    """Watches deliveries of the messages 0 to n - 1, which one producer sent in that order, to one consumer at a time.

    Args:
        messages: how many were sent.

    Attributes:
        received: how many different messages came.
        out_of_order: deliveries that came after a later message: on the same connection, or as first deliveries on any.
        redelivered: deliveries flagged as redelivered.
        duplicates: second and later deliveries that were flagged.
        unflagged_duplicates: those that were not.
    """

    def __init__(self, messages: int) -> None:
        self._seen = bytearray(messages)
        self._highest = -1
        self._last = -1
        self.received = 0
        self.out_of_order = 0
        self.redelivered = 0
        self.duplicates = 0
        self.unflagged_duplicates = 0

    @property
    def missing(self) -> int:
        """How many messages never came."""
        return len(self._seen) - self.received

    def connected(self) -> None:
        """The consumer has connected anew: what came back may come again, before what is later."""
        self._last = -1

    def delivered(self, number: int, redelivered: bool) -> None:
        """A message has come.

        Args:
            number: its number.
            redelivered: whether it was flagged so.
        """
        is_first = not self._seen[number]
        if number <= self._last or (is_first and number < self._highest):
            self.out_of_order += 1
        self.redelivered += redelivered
        if is_first:
            self._seen[number] = 1
            self.received += 1
        elif redelivered:
            self.duplicates += 1
        else:
            self.unflagged_duplicates += 1
        self._last = number
        self._highest = max(self._highest, number)
