"""The memory tree: how many bytes of messages are resident, in the broker and in each destination, against limits.

A cursor reserves memory before it admits a message and releases it when the message is done with. A refused cursor
waits here; a release anywhere in the tree wakes the waiting cursors, in the order of their refusal.
"""

from collections import deque
from collections.abc import Callable

Waiter = Callable[[], bool]
"""Called after a release: try again, and say whether the wait is over."""


ROUNDS = 16
"""After so many rounds without progress, waiters wait for another release."""


class MemoryUsage:
    """A node of the tree, with a limit of its own or 0; ``used`` and ``peak`` are bytes resident now and at most."""

    __slots__ = ("_released", "_root", "_untried", "_waiters", "limit", "parent", "peak", "used")

    def __init__(self, limit: int = 0, parent: "MemoryUsage | None" = None) -> None:
        self.limit = limit
        self.parent = parent
        self.used = 0
        self.peak = 0
        self._root: MemoryUsage = parent._root if parent else self
        if not parent:  # the whole tree waits at its root
            self._waiters: dict[Waiter, None] = {}
            self._untried: deque[Waiter] = deque()
            self._released = False

    def available(self) -> int:
        """Bytes that may still be reserved here, under every limit above; negative when a lone giant exceeds one."""
        room = self.limit - self.used if self.limit else 1 << 62
        return min(room, self.parent.available()) if self.parent else room

    def reserve(self, size: int) -> bool:
        """Reserve bytes, and return True, if they fit under every limit."""
        if size > self.available():
            return False
        self.force(size)
        return True

    def force(self, size: int) -> None:
        """Reserve bytes whether they fit or not: for the one message of a lane that has nothing resident."""
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        if self.parent:
            self.parent.force(size)

    def release(self, size: int) -> None:
        """Release reserved bytes. The next ``wake`` wakes waiting cursors."""
        self.used -= size
        if self.parent:
            self.parent.release(size)
        else:
            self._released = True

    def wait(self, waiter: Waiter) -> None:
        """Be woken after a release. A waiter that waits already keeps its place."""
        root = self._root
        if not root._waiters:
            root._released = False  # what was released up to now is what it did not suffice
        root._waiters.setdefault(waiter, None)

    def stop_waiting(self, waiter: Waiter) -> None:
        """Be woken no more."""
        self._root._waiters.pop(waiter, None)

    @property
    def is_waited_for(self) -> bool:
        """Whether a cursor anywhere in the tree waits for a release."""
        return bool(self._root._waiters)

    def wake(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """After a release: let every waiter try again, in the order of refusal. The broker calls it once a turn.

        With ``is_over`` the time is up: True is returned if waiters are left, and the next call continues with them.
        """
        root, in_vain = self._root, 0
        while root._untried or (root._released and root._waiters and in_vain < ROUNDS):
            if not root._untried:
                root._released = False
                root._untried.extend(root._waiters)
            before, waiting = root.used, len(root._waiters)
            while root._untried:
                waiter = root._untried.popleft()
                if waiter in root._waiters and waiter():
                    root._waiters.pop(waiter, None)
                if is_over():
                    return bool(root._untried or root._released)
            # What waiters release that they reserved themselves must not wake them for ever.
            in_vain = in_vain + 1 if root.used >= before and len(root._waiters) >= waiting else 0
        root._released = False
        return False
