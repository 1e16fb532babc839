"""The memory tree: how many bytes of messages are resident, in the broker and in each destination, against limits.

A cursor reserves before it admits a message and releases when the message is done with. A cursor that was refused waits
here; any release anywhere in the tree wakes the waiting cursors, in the order of their refusal.
"""

from collections import deque
from collections.abc import Callable

Waiter = Callable[[], bool]
"""Called after a release: try again, and say whether the wait is over."""


ROUNDS = 16
"""After so many rounds in which nobody got anywhere, waiters wait for another release."""


class MemoryUsage:
    """A node of the tree.

    Args:
        limit: how many bytes may be resident below this node; 0 for no limit of its own.
        parent: the node this one is part of; None for the broker's.

    Attributes:
        used: bytes resident now.
        peak: the most bytes that ever were.
    """

    __slots__ = ("_released", "_untried", "_waiters", "limit", "parent", "peak", "used")

    def __init__(self, limit: int = 0, parent: "MemoryUsage | None" = None) -> None:
        self.limit = limit
        self.parent = parent
        self.used = 0
        self.peak = 0
        self._waiters: dict[Waiter, None] = {}
        self._untried: deque[Waiter] = deque()
        self._released = False

    def available(self) -> int:
        """Bytes that may still be reserved here, under every limit above; negative when a lone giant exceeds one."""
        room = self.limit - self.used if self.limit else 1 << 62
        return min(room, self.parent.available()) if self.parent else room

    def reserve(self, size: int) -> bool:
        """Reserve bytes, if they fit under every limit.

        Args:
            size: bytes.

        Returns:
            Whether they were reserved.
        """
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
        """Give bytes back. Waiting cursors are woken by the next ``wake``.

        Args:
            size: bytes, reserved before.
        """
        self.used -= size
        if self.parent:
            self.parent.release(size)
        else:
            self._released = True

    def wait(self, waiter: Waiter) -> None:
        """Be woken after a release. A waiter that waits already keeps its place."""
        root = self._root()
        if not root._waiters:
            root._released = False  # what was released up to now is what it did not suffice
        root._waiters.setdefault(waiter, None)

    def stop_waiting(self, waiter: Waiter) -> None:
        """Be woken no more."""
        self._root()._waiters.pop(waiter, None)

    @property
    def is_waited_for(self) -> bool:
        """Whether a cursor anywhere in the tree waits for a release."""
        return bool(self._root()._waiters)

    def wake(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """After a release: let every waiter try again, in the order of refusal. The broker calls it once a turn.

        Args:
            is_over: whether the time is up; the next call goes on with the waiters that are left.

        Returns:
            Whether some are left.
        """
        root, in_vain = self._root(), 0
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
            # What they give back that they had taken themselves must not wake them for ever.
            in_vain = in_vain + 1 if root.used >= before and len(root._waiters) >= waiting else 0
        root._released = False
        return False

    def _root(self) -> "MemoryUsage":
        node = self
        while node.parent:
            node = node.parent
        return node
