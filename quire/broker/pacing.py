"""When a commit begins: at once, or a moment later so that it serves more senders.

Producers that wait for each receipt come back together, right after the commit that confirmed them. A commit begun with
the first of them makes all others wait for the next one, and so half of them wait at any time. So a commit lingers, for
a millisecond at the most and only right after another one, until as many senders are in it as the last two commits had.

Acknowledgements without a receipt have no waiting sender: they go with the next commit, or after some milliseconds.
"""

from quire.broker.core.commit import Commit
from quire.broker.core.subscription import Session
from quire.clock import Clock

LINGER = 0.001
"""How long a commit waits for the senders of the last two, in seconds after the end of the last one."""

UNHURRIED = 0.01
"""How long a commit without waiting senders may wait, in seconds."""


class CommitPacing:
    """Decides when the open commit begins.

    Args:
        lingers: whether it ever waits; a test that steps commits by hand does not want that.
    """

    def __init__(self, clock: Clock, *, lingers: bool) -> None:
        self._clock = clock
        self._lingers = lingers
        self._last: set[Session] = set()
        self._expected = 0
        self._ended_at = 0.0
        self._seen_at: float | None = None

    def ended(self, commit: Commit) -> None:
        """A commit is done."""
        senders = set(commit.senders)
        self._expected = len(senders | self._last)
        self._last = senders
        self._ended_at = self._clock.monotonic()

    def delay(self, commit: Commit) -> float:
        """How long the open commit has to wait before it begins.

        Returns:
            Seconds; 0 if it begins now.
        """
        if not self._lingers:
            return 0.0
        now = self._clock.monotonic()
        if self._seen_at is None:
            self._seen_at = now
        if commit.is_urgent:
            crowded = len(commit.senders) >= self._expected
            left = 0.0 if crowded else self._ended_at + LINGER - now
        else:
            left = self._seen_at + UNHURRIED - now
        if left > 0:
            return left
        self._seen_at = None
        return 0.0
