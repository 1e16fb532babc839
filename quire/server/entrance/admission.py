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

    A connection with TLS costs most before its login: handshakes take time and memory, and anyone may begin one. So few
    are before it at once. The next ones wait unread, those of each address by themselves: however many one address has
    that do not log in, connections from others have their turn. One that sends nothing, or no TLS, takes no turn.

    Attributes:
        open: how many connections there are.
        before_login: how many of them have begun TLS and not logged in yet.
        waiting: how many wait for their turn.
        refused: how many connections were refused for a limit, by the limit.
    """

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self.open = 0
        self.before_login = 0
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._before_login: Counter[str] = Counter()  # by address
        self.waiting = 0
        self._waiting: dict[str, dict[Visitor, Callable[[], None]]] = {}  # by address: each address has its turn

    def enter(self, visitor: Visitor) -> None:
        """A connection comes.

        Raises:
            TooManyConnections: there are as many as there may be.
        """
        limits, host = self.limits, visitor.host
        self._check(self.open, limits.connections, "connections", "connections are open")
        at_most = limits.connections_per_address
        self._check(self._addresses[host], at_most, "connections_per_address", f"connections of {host} are open")
        visitor.is_counted = True
        self.open += 1
        self._addresses[host] += 1

    def agree(self, visitor: Visitor, begin: Callable[[], None]) -> None:
        """A client wants TLS: ``begin`` is called now, or when its turn has come.

        Raises:
            TooManyConnections: as many wait as may wait.
        """
        host = visitor.host
        if host not in self._waiting and self._has_room(host):
            self._begin(visitor, begin)
            return
        self._check(self.waiting, MOST_WAITING, "unauthenticated", "connections wait for others to log in")
        self.waiting += 1
        self._waiting.setdefault(host, {})[visitor] = begin

    def logged_in(self, visitor: Visitor, user: str) -> None:
        """A client has logged in, perhaps anew as another user."""
        if not visitor.is_counted or visitor.user == user:
            return
        if user:
            at_most = self.limits.connections_per_user
            self._check(self._users[user], at_most, "connections_per_user", f"connections of user {user!r} are open")
            self._users[user] += 1
        if visitor.user:
            _take_one(self._users, visitor.user)
        visitor.user = user
        self._end_turn(visitor)

    def left(self, visitor: Visitor) -> None:
        """A connection is gone."""
        if not visitor.is_counted:
            return
        visitor.is_counted = False
        self.open -= 1
        _take_one(self._addresses, visitor.host)
        if visitor.user:
            _take_one(self._users, visitor.user)
        self._end_turn(visitor)
        if visitor in (waiting := self._waiting.get(visitor.host, {})):
            self._take(visitor.host, waiting, visitor)

    def _check(self, count: int, limit: int, name: str, what: str) -> None:
        if limit and count >= limit:
            self.refused[name] += 1
            raise TooManyConnections(f"{count} {what}: see limits.{name}", limit=limit, setting=name)

    def _has_room(self, host: str) -> bool:
        limits = self.limits
        return (
            self.before_login < limits.unauthenticated and self._before_login[host] < limits.unauthenticated_per_address
        )

    def _begin(self, visitor: Visitor, begin: Callable[[], None]) -> None:
        visitor.has_turn = True
        self.before_login += 1
        self._before_login[visitor.host] += 1
        begin()

    def _end_turn(self, visitor: Visitor) -> None:
        """A connection has logged in or is gone: if it was before its login, the next one has its turn."""
        if not visitor.has_turn:
            return
        visitor.has_turn = False
        self.before_login -= 1
        _take_one(self._before_login, visitor.host)
        for host, waiting in self._waiting.items():  # few: an address without room has its full number before login
            if self._has_room(host):
                following = next(iter(waiting))
                self._begin(following, self._take(host, waiting, following))
                return

    def _take(self, host: str, waiting: dict[Visitor, Callable[[], None]], visitor: Visitor) -> Callable[[], None]:
        """One waits no longer; after it, other addresses have their turn."""
        begin = waiting.pop(visitor)
        self.waiting -= 1
        del self._waiting[host]
        if waiting:
            self._waiting[host] = waiting
        return begin


def _take_one(counter: Counter[str], key: str) -> None:
    """Count one less; what is 0 is not kept, or addresses that never come again would gather."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
