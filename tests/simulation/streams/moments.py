"""When a thing that happens is durable."""


class Moments:
    """Counts what happens, and knows how much of it is durable."""

    def __init__(self) -> None:
        self.now = self.durable = 0

    def next(self) -> int:
        """Something happens."""
        self.now += 1
        return self.now

    def confirm(self, moment: int) -> None:
        """What had happened at a moment is durable: a receipt says so, or the broker is at rest."""
        self.durable = max(self.durable, moment)
