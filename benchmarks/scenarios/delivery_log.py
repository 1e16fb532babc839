"""What a consumer has got of numbered messages, and whether that keeps the promises about loss and order."""

from benchmarks.scenarios.number_log import NumberLog


class DeliveryLog(NumberLog):
    """Watches deliveries of messages that one producer sent in the order of their numbers, to one consumer at a time.

    What comes after a later message is out of order: on the same connection, or as a first delivery on any.
    """

    def __init__(self, messages: int) -> None:
        super().__init__(messages)
        self._highest = self._last = -1

    def connected(self) -> None:
        """The consumer has connected anew: what came back may come again, before what is later."""
        self._last = -1

    def delivered(self, number: int, redelivered: bool) -> None:
        """A message has come."""
        is_first = self.count(number, redelivered)
        self.out_of_order += number <= self._last or (is_first and number < self._highest)
        self._last = number
        self._highest = max(self._highest, number)
