"""The dispatch mark of a queue: up to which sequence messages may have been delivered, should the broker die now.

It is written ahead in steps, so that it costs one small write for so many messages and not one for each. After a crash,
what is at or below the mark comes back flagged as redelivered.
"""

STEP = 4096
"""How far ahead of dispatch the mark is written, in sequences."""


class DispatchMark:
    """One queue's mark: what is stored, what is on its way there, and what is wanted.

    Args:
        stored: the mark the store has.
    """

    __slots__ = ("_asked", "_wanted", "stored")

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self._asked = self._wanted = stored

    def reach(self, sequence: int) -> bool:
        """A message is about to be dispatched. It may be, if its sequence is not above ``stored``.

        Returns:
            Whether the mark has to be written further ahead, with the open commit.
        """
        if sequence <= self._wanted - STEP // 2:
            return False
        self._wanted = sequence + STEP
        return True

    def take(self) -> int | None:
        """What the commit that begins now has to write; None if nothing."""
        if self._wanted <= self._asked:
            return None
        self._asked = self._wanted
        return self._asked

    def failed(self) -> None:
        """The commit that had it failed: it is written with the next one."""
        self._asked = self.stored
