"""The dispatch mark of a lane: up to which sequence messages may have been delivered, should the broker die now.

It is written ahead, by what consumers may be given until the next commit, so that it goes along with commits that
happen anyway. After a crash, what is at or below the mark comes back flagged as redelivered.
"""

STEP = 4096
"""How far ahead of dispatch the mark is written at the most, in sequences."""

NEVER_STORED = 1 << 62
"""The mark of a lane of which nothing is stored: there is no crash after which anything could come back."""


class DispatchMark:
    """One lane's mark: what is stored, what is on its way there, and what is wanted."""

    __slots__ = ("_asked", "_reached", "_start", "_wanted", "stored")

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self._asked = self._wanted = stored
        self._reached = self._start = 0  # how far dispatch was when more was wanted last, and when that was asked for

    def reach(self, sequence: int, window: int) -> bool:
        """A message is about to be dispatched. It may be, if its sequence is not above ``stored``.

        Args:
            window: how many messages the consumers may have in flight, all together. The mark runs ahead by so many,
                or by as many as were dispatched since the last commit; by twice that if dispatch waits for the mark.

        Returns:
            Whether the mark has to be written further ahead, with the open commit.
        """
        ahead = window
        if self._start:
            ahead = max(window, sequence - self._start) * (2 if sequence > self.stored else 1)
        ahead = min(ahead, STEP)
        if sequence <= self._wanted - (ahead + 1) // 2:
            return False
        self._reached = sequence
        self._wanted = sequence + ahead
        return True

    def take(self) -> int | None:
        """What the commit that begins now has to write; None if nothing."""
        if self._wanted <= self._asked:
            return None
        self._asked = self._wanted
        self._start = self._reached
        return self._asked

    def failed(self) -> None:
        """The commit that had it failed: it is written with the next one."""
        self._asked = self.stored
