"""Who clients are and what they may do, for all doors: logins, rights, and the look at all of them after a change.

``Gate`` lets clients in, and counts the destinations that each user creates. A ``Guard`` is the rules for one client:
it is asked once for each destination, and again after a change.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from quire.broker.broker import Broker
from quire.broker.dead_letter import LETTER_HEADERS
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.transactions.transaction import Transaction
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import AccessRefused, QuireError, TooManyDestinations, UnknownSubscription
from quire.security import Access, Action, Credentials, Origin, Permission, Security
from quire.selectors.parser import headers_in, parse

RECALLED = 1000
"""So many users whose scheduled messages are due are remembered with their rights."""

BUDGET = 0.005
"""How long connections are looked at in one turn after a change, in seconds."""


class Guarded(Protocol):
    is_closed: bool

    def recheck(self) -> Iterator[None]: ...


class Gate:
    """Lets clients in, and looks at them again after each change of users, rules and tokens."""

    def __init__(self, broker: Broker, security: Security, sessions: Callable[[], Iterable[Guarded]]) -> None:
        self._broker = broker
        self._security = security
        self._sessions = sessions
        self.refused = 0
        self._rechecking: Iterator[None] | None = None
        self._created: dict[str, set[Destination]] = {}  # by user, since the start
        self._recalled: dict[str, Access] = {}
        security.watch(self.recheck_permissions)
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
        destinations = self._broker.destinations
        named: Mapping[str, object] = destinations.queues
        if kind is not DestinationKind.QUEUE:
            named = destinations.topics if kind is DestinationKind.TOPIC else destinations.streams
        return name in named

    def reached(self, destinations: Iterable[Destination]) -> set[Destination]:
        """Where a message comes that is sent to some destinations."""
        return self._broker.routing.reached(destinations)

    def creates(self, user: str, destination: Destination) -> None:
        """A user is about to create a destination, if it is not there; ``TooManyDestinations`` beyond its limit."""
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

    def recheck_permissions(self) -> None:
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
        clock = self._broker.core.clock
        end = clock.monotonic() + BUDGET
        assert self._rechecking is not None
        for _ in self._rechecking:
            if clock.monotonic() > end:
                return True
        self._rechecking = None
        return False


HEADERS_OF_THE_BROKER = LETTER_HEADERS | {
    "JMSDeliveryMode", "JMSExpiration", "JMSMessageID", "JMSPriority", "JMSRedelivered", "JMSTimestamp",
}  # fmt: skip
"""What a selector may ask for without the right to read: what the broker says of a message."""


class Guard:
    """The rules for one client, in the doors' terms. What is not allowed is ``AccessRefused``.

    ``is_open``: it may do everything, there are no users. ``sender``: who it is, as its scheduled messages keep it.
    """

    def __init__(self, gate: Gate, access: Access) -> None:
        self.access = access
        self.is_open = not access.principal.name
        self.sender = gate.remembered(access)
        self._gate = gate

    def check_send(self, addresses: Iterable[Address]) -> None:
        """See that a message may go to destinations, all of them. Anybody may answer to a temporary one."""
        if not self.is_open:
            for address in addresses:
                if address.scope is Scope.COMMON:
                    self._check(Action.WRITE, address)

    def check_sent(self, transaction: Transaction) -> None:
        """See that what was sent in a transaction may go where it goes: it is sent now, and rules may have changed."""
        if not self.is_open:
            for destination in {send.destination: None for send in transaction.sends}:
                self.check_send(read_destination(destination)[0])

    def check_transfer(self, source: Destination, target: str, *, returns: bool = False) -> None:
        """See that messages of a queue may be brought to a destination, as ``TransferRights``.

        Who may not read the queue may not bring them where it could read them: an operator moves what it does not read.
        """
        if self.is_open:
            return
        addresses = [address for address in read_destination(target)[0] if address.scope is Scope.COMMON]
        for address in addresses:
            if self.access.allows(Action.MANAGE, address.kind, address.name):
                self.creates(address)
            else:
                self._check(Action.WRITE, address)
        named = {Destination(address.kind, address.name) for address in addresses}
        reached = self._gate.reached(named) - named if returns else self._gate.reached(named)
        if any([self.may_read(destination) for destination in reached]):
            self.access.check(Action.READ, source.kind, source.name)

    def check_selector(self, source: Destination, selector: str | None) -> None:
        """See that a client may choose messages by a selector: how many match tells what their headers say."""
        if not (self.is_open or selector is None or set(headers_in(parse(selector))) <= HEADERS_OF_THE_BROKER):
            self.access.check(Action.READ, source.kind, source.name)

    def check_subscribe(self, addresses: Iterable[Address]) -> None:
        """See that destinations may be read; of those that match wildcards one gets what ``may_read`` allows."""
        if not self.is_open:
            for address in addresses:
                if address.scope is Scope.COMMON and not Pattern(address.name).is_wildcard:
                    self._check(Action.READ, address)

    def check_create(self, address: Address) -> None:
        """See that a destination may be created; of one that is there, that the client may know that it is."""
        if self.is_open:
            return
        kind, name, _ = address
        if not self._gate.is_there(kind, name):
            self.access.check(Action.CREATE, kind, name)
            self.creates(address)
        elif not self.access.sees(kind, name):
            raise self.access.refusal(Action.CREATE, kind, name)

    def creates(self, address: Address) -> None:
        """The client is about to create a destination if it is not there, and may do so within its limit."""
        if not self.is_open:
            self._gate.creates(self.access.principal.name, Destination(address.kind, address.name))

    def check_manage(self, address: Address) -> None:
        if not self.is_open:
            self.access.check(Action.MANAGE, address.kind, address.name)

    def check_durable(self, owner: str, topic: Destination, name: str) -> None:
        """See that a durable subscription is the client's own: its user has made it, or it may manage the topic.

        Another user's is answered as one that is not there.
        """
        if self.is_open or owner in ("", self.access.principal.name):
            return
        if not self.access.allows(Action.MANAGE, topic.kind, topic.name):
            raise UnknownSubscription(f"this user has no durable subscription {name[:60]!r}", name=name[:60])

    def owns(self, owner: str) -> bool:
        """Whether something is the client's own by its user, or it operates the broker."""
        return self.is_open or owner == self.access.principal.name or self.access.may(Permission.OPERATE)

    def sees(self, destination: Destination) -> bool:
        return self.is_open or self.access.sees(destination.kind, destination.name)

    def may_read(self, destination: Destination) -> bool:
        """Whether a consumer of a wildcard gets a destination."""
        return self.is_open or self.access.allows(Action.READ, destination.kind, destination.name)

    def lost_read(self, destination: Destination) -> QuireError | None:
        """Why a consumer must end that the client has; None if it may go on."""
        if self.may_read(destination):
            return None
        text = f"user {self.access.principal.name!r} may no longer read {destination.kind}://{destination.name}"
        return AccessRefused(text, action="read", destination=f"{destination.kind}://{destination.name}")

    def _check(self, action: Action, address: Address) -> None:
        kind, name, _ = address
        self.access.check(action, kind, name, exists=self._gate.is_there(kind, name))
        self.creates(address)
