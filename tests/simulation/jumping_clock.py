"""A clock that is set while a broker runs, and the time that it should show."""

from quire.clock import ManualClock

LONGEST = 40.0
"""After so many seconds a clock that was set is set right: a broker believes one that stays so for a minute."""


class RightClock:
    """What a clock would show that was never set: that of the clients, and of what was promised to them."""

    def __init__(self, clock: "JumpingClock") -> None:
        self.wrong = clock
        self._begun = clock.now_ms()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._begun + int(self.wrong.monotonic() * 1000)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self.wrong.monotonic()

    def right_ms(self, time_ms: int) -> int:
        """What a time should have been that the broker has noted; it is wrong by whole hours."""
        return time_ms - round((time_ms - self.now_ms()) / 3_600_000) * 3_600_000


class JumpingClock(ManualClock):
    """The clock of the broker's machine.

    Attributes:
        ahead: by how many seconds it is ahead of the right one.
        was_set: whether it was ever wrong.
        misled: whether a broker has started with a wrong one: it cannot know, and goes by it.
        right: the right clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.was_set = self.misled = False
        self.right = RightClock(self)
        self._set_at = 0.0

    def set(self, ahead: float) -> None:
        """Be ahead of the right one by so many seconds from now on."""
        self.jump(ahead - self.ahead)
        self.ahead, self._set_at = ahead, self.monotonic()
        self.was_set = self.was_set or bool(ahead)

    def advance(self, seconds: float) -> None:
        """Move on, both times; a clock that was wrong for long is set right."""
        super().advance(seconds)
        if self.ahead and self.monotonic() - self._set_at > LONGEST:
            self.set(0.0)
