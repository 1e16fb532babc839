"""What has come of numbered messages."""


class NumberLog:
    """Which of the messages 0 to n - 1 have come, and how.

    Attributes:
        received: how many different messages came.
        out_of_order: deliveries that came in a wrong order.
        redelivered: deliveries flagged as redelivered.
        duplicates: second and later deliveries that were flagged.
        unflagged_duplicates: those that were not.
    """

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self._seen = bytearray(messages)
        self.received = self.out_of_order = self.redelivered = self.duplicates = self.unflagged_duplicates = 0

    @property
    def missing(self) -> int:
        """How many messages never came."""
        return self.messages - self.received

    def count(self, number: int, redelivered: bool) -> bool:
        """Count a delivery; whether it is the message's first."""
        self.redelivered += redelivered
        if self._seen[number]:
            self.duplicates += redelivered
            self.unflagged_duplicates += not redelivered
            return False
        self._seen[number] = 1
        self.received += 1
        return True
