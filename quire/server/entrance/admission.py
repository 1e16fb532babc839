"""How many connections there may be: in all, of one address, of one user, and before their login."""

from collections import Counter
from collections.abc import Callable

from quire.errors import TooManyConnections
from quire.server.entrance.visitor import Visitor
from quire.settings import LimitSettings

MOST_WAITING = 4000
"""How many connections may wait for their turn."""


class Admission:
    """Counts the connections of all doors.

    A connection costs most before its login: TLS is agreed on, and its first bytes may be anything. So few are before
    it at once, and the next ones wait unread, those of each address by themselves: however many one address has that
    do not log in, connections from others have their turn.

    Args:
        has_login: whether there are users or TLS. Else a connection costs little at first, and none waits.

    Attributes:
        open: how many connections there are.
        before_login: how many of them have begun and not logged in yet.
        waiting: how many wait for their turn.
        refused: how many connections were refused for a limit, by the limit.
    """

    def __init__(self, limits: LimitSettings, has_login: Callable[[], bool] = lambda: True) -> None:
        self.limits = limits
        self._has_login = has_login
        self.refused: Counter[str] = Counter()
        self.open = 0
        self.before_login = 0
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._before_login: Counter[str] = Counter()  # by address
        self.waiting = 0
        self._waiting: dict[str, dict[Visitor, None]] = {}  # by address: each address has its turn

    def enter(self, visitor: Visitor) -> None:
        """A connection comes. It begins now, or waits for its turn.

        Raises:
            TooManyConnections: there are as many as there may be.
        """
        limits, host = self.limits, visitor.host
        self._check(self.open, limits.connections, "connections", "connections are open")
        at_most = limits.connections_per_address
        self._check(self._addresses[host], at_most, "connections_per_address", f"connections of {host} are open")
        begins = host not in self._waiting and self._has_room(host)
        if not begins:
            self._check(self.waiting, MOST_WAITING, "unauthenticated", "connections wait for others to log in")
        visitor.is_counted = True
        self.open += 1
        self._addresses[host] += 1
        if begins:
            self._begin(visitor)
        else:
            self.waiting += 1
            self._waiting.setdefault(host, {})[visitor] = None

    def logged_in(self, visitor: Visitor, user: str) -> None:
        """A client has logged in."""
        if not visitor.is_counted or visitor.user:
            return
        if user:
            at_most = self.limits.connections_per_user
            self._check(self._users[user], at_most, "connections_per_user", f"connections of user {user!r} are open")
            self._users[user] += 1
        was_before_login, visitor.user = visitor.user is None, user
        if was_before_login:
            self._no_longer_before_login(visitor.host)

    def left(self, visitor: Visitor) -> None:
        """A connection is gone."""
        if not visitor.is_counted:
            return
        visitor.is_counted = False
        self.open -= 1
        _take_one(self._addresses, visitor.host)
        if visitor.user:
            _take_one(self._users, visitor.user)
        if visitor.user is None and visitor.has_begun:
            self._no_longer_before_login(visitor.host)
        elif not visitor.has_begun:
            self._drop(visitor)

    def _check(self, count: int, limit: int, name: str, what: str) -> None:
        if limit and count >= limit:
            self.refused[name] += 1
            raise TooManyConnections(f"{count} {what}: see limits.{name}", limit=limit, setting=name)

    def _has_room(self, host: str) -> bool:
        limits = self.limits
        if not self._has_login():
            return True
        return (
            self.before_login < limits.unauthenticated and self._before_login[host] < limits.unauthenticated_per_address
        )

    def _begin(self, visitor: Visitor) -> None:
        visitor.has_begun = True
        self.before_login += 1
        self._before_login[visitor.host] += 1
        visitor.begin()

    def _no_longer_before_login(self, host: str) -> None:
        self.before_login -= 1
        _take_one(self._before_login, host)
        for host in self._waiting:  # few: an address without room has its full number before login
            if self._has_room(host):
                self._begin_next(host)
                return

    def _begin_next(self, host: str) -> None:
        """The next of an address has its turn; after it those of other addresses."""
        waiting = self._waiting.pop(host)
        visitor = next(iter(waiting))
        del waiting[visitor]
        self.waiting -= 1
        if waiting:
            self._waiting[host] = waiting
        self._begin(visitor)

    def _drop(self, visitor: Visitor) -> None:
        if (waiting := self._waiting.get(visitor.host)) is not None:
            del waiting[visitor]
            self.waiting -= 1
            if not waiting:
                del self._waiting[visitor.host]


def _take_one(counter: Counter[str], key: str) -> None:
    """Count one less; what is 0 is not kept, or addresses that never come again would gather."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
