"""What all doors of clients share: who logs in, who may create destinations, and what becomes of a change of rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from quire.broker.broker import Broker
from quire.broker.routing.addresses import Scope, read_destination
from quire.destination import Destination, DestinationKind
from quire.errors import QuireError, TooManyDestinations
from quire.security import Access, Action, Credentials, Origin, Security

RECALLED = 1000
"""So many users whose scheduled messages are due are remembered with their rights."""

BUDGET = 0.005
"""How long connections are looked at in one turn after a change, in seconds."""


class Guarded(Protocol):
    """A connection, as the gate sees it."""

    is_closed: bool

    def recheck(self) -> Iterator[None]:
        """Look at everything again that the client has open, and end what it may not have any more."""


class Gate:
    """Lets clients in, and looks at them again after each change of users, rules and tokens.

    Args:
        sessions: gives all that are open.

    Attributes:
        refused: how many destinations were refused for ``limits.destinations_per_user``.
    """

    def __init__(self, broker: Broker, security: Security, sessions: Callable[[], Iterable[Guarded]]) -> None:
        self._broker = broker
        self._security = security
        self._sessions = sessions
        self.refused = 0
        self._rechecking: Iterator[None] | None = None
        self._created: dict[str, set[Destination]] = {}  # by user, since the start
        self._recalled: dict[str, Access] = {}
        security.watch(self.look_again)
        security.watch(self._recalled.clear)
        broker.schedule.check_send = self.check_scheduled

    # Logins.

    def log_in(self, credentials: Credentials, origin: Origin, done: Callable[[Access | QuireError], None]) -> None:
        """Find out who a client is; ``done`` is called with the outcome, at once or later."""
        self._security.authenticate(credentials, origin, done)

    def remembered(self, access: Access) -> str:
        """Who a client is, as its scheduled messages keep it; empty while there are no users."""
        return self._security.accounts.remembered(access.principal)

    def check_scheduled(self, sender: str, destination: str) -> None:
        """See that a user may still send what it has scheduled.

        Raises:
            AccessRefused: it may not, or it is gone.
        """
        if not sender or not self._security.is_enabled:
            return
        access = self._recalled.get(sender)
        if access is None:
            if len(self._recalled) >= RECALLED:
                self._recalled.clear()
            access = self._recalled[sender] = self._security.recalled(sender, Origin("schedule", ""))
        for kind, name, scope in read_destination(destination)[0]:
            if scope is Scope.COMMON:
                access.check(Action.WRITE, kind, name, exists=self.is_there(kind, name))
                self.creates(access.principal.name, Destination(kind, name))

    # Destinations.

    def is_there(self, kind: DestinationKind, name: str) -> bool:
        """Whether there is a destination."""
        destinations = self._broker.destinations
        named: Mapping[str, object] = destinations.queues
        if kind is not DestinationKind.QUEUE:
            named = destinations.topics if kind is DestinationKind.TOPIC else destinations.streams
        return name in named

    def reached(self, destinations: Iterable[Destination]) -> set[Destination]:
        """Where a message comes that is sent to some destinations."""
        return self._broker.routing.reached(destinations)

    def creates(self, user: str, destination: Destination) -> None:
        """A user is about to create a destination, if it is not there.

        Raises:
            TooManyDestinations: it has created as many as it may, and they are still there.
        """
        limit = self._broker.core.settings.limits.destinations_per_user
        if not limit or not user or self.is_there(destination.kind, destination.name):
            return
        created = self._created.setdefault(user, set())
        if len(created) >= limit:
            created = {known for known in created if self.is_there(known.kind, known.name)}
            self._created[user] = created
        if len(created) >= limit:
            self.refused += 1
            text = f"user {user!r} has created {limit} destinations: limits.destinations_per_user"
            raise TooManyDestinations(text, limit=limit)
        created.add(destination)

    # Changes.

    def look_again(self) -> None:
        """Look at all connections again, in steps: what clients may have has changed."""
        if self._rechecking is None:
            self._broker.core.steps.add(self._recheck_some, "the check of connections", stores=False)
        self._rechecking = self._recheck()

    def _recheck(self) -> Iterator[None]:
        for session in list(self._sessions()):
            if not session.is_closed:
                yield from session.recheck()
            yield

    def _recheck_some(self) -> bool:
        """Look at some connections; whether there are more."""
        clock = self._broker.core.clock
        end = clock.monotonic() + BUDGET
        assert self._rechecking is not None
        for _ in self._rechecking:
            if clock.monotonic() > end:
                return True
        self._rechecking = None
        return False
