"""What one client may do with destinations: it is asked once for each of them, and again after a change."""

from collections.abc import Iterable

from quire.broker.dead_letter import LETTER_HEADERS
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.transactions.transaction import Transaction
from quire.destination import Destination
from quire.destination_pattern import Pattern
from quire.errors import AccessRefused, UnknownSubscription
from quire.security import Access, Action, Permission
from quire.selectors.parser import headers_in, parse
from quire.server.gate import Gate

OF_THE_BROKER = LETTER_HEADERS | {
    "JMSDeliveryMode", "JMSExpiration", "JMSMessageID", "JMSPriority", "JMSRedelivered", "JMSTimestamp",
}  # fmt: skip
"""What a selector may ask for without the right to read: what the broker says of a message."""


class Guard:
    """The rules for one client, in the doors' terms.

    Attributes:
        access: what it is allowed by the rules.
        is_open: whether it may do everything: there are no users.
        sender: who it is, as its scheduled messages keep it.
    """

    def __init__(self, gate: Gate, access: Access) -> None:
        self.access = access
        self.is_open = not access.principal.name
        self.sender = gate.remembered(access)
        self._gate = gate

    def check_send(self, addresses: Iterable[Address]) -> None:
        """See that a message may go to destinations, all of them. Anybody may answer to a temporary one.

        Raises:
            AccessRefused: it may not go to one of them.
        """
        if not self.is_open:
            for address in addresses:
                if address.scope is Scope.COMMON:
                    self._check(Action.WRITE, address)

    def check_sent(self, transaction: Transaction) -> None:
        """See that what was sent in a transaction may go where it goes: it is sent now, and rules may have changed.

        Raises:
            AccessRefused: it may not go to one of its destinations any more.
        """
        if not self.is_open:
            for destination in {send.destination: None for send in transaction.sends}:
                self.check_send(read_destination(destination)[0])

    def check_transfer(self, source: Destination, target: str, *, returns: bool = False) -> None:
        """See that messages of a queue may be brought to a destination, as ``TransferRights``.

        Who may not read the queue may not bring them where it could read them: an operator moves what it does not read.

        Raises:
            AccessRefused: they may not.
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
        """See that a client may choose messages by a selector: how many match tells what their headers say.

        Raises:
            AccessRefused: it may not read the messages, and the selector asks for what their sender wrote.
            InvalidSelector: it cannot be read.
        """
        if not (self.is_open or selector is None or set(headers_in(parse(selector))) <= OF_THE_BROKER):
            self.access.check(Action.READ, source.kind, source.name)

    def check_subscribe(self, addresses: Iterable[Address]) -> None:
        """See that destinations may be read; of those that match wildcards one gets what ``may_read`` allows.

        Raises:
            AccessRefused: one may not be read.
        """
        if not self.is_open:
            for address in addresses:
                if address.scope is Scope.COMMON and not Pattern(address.name).is_wildcard:
                    self._check(Action.READ, address)

    def check_create(self, address: Address) -> None:
        """See that a destination may be created; of one that is there, that the client may know that it is.

        Raises:
            AccessRefused: it may not.
        """
        if self.is_open:
            return
        kind, name, _ = address
        if not self._gate.is_there(kind, name):
            self.access.check(Action.CREATE, kind, name)
            self.creates(address)
        elif not self.access.sees(kind, name):
            raise self.access.refusal(Action.CREATE, kind, name)

    def creates(self, address: Address) -> None:
        """The client is about to create a destination if it is not there, and may do so.

        Raises:
            TooManyDestinations: it has created as many as it may.
        """
        if not self.is_open:
            self._gate.creates(self.access.principal.name, Destination(address.kind, address.name))

    def check_manage(self, address: Address) -> None:
        """See that a destination may be removed.

        Raises:
            AccessRefused: it may not.
        """
        if not self.is_open:
            self.access.check(Action.MANAGE, address.kind, address.name)

    def check_durable(self, owner: str, topic: Destination, name: str) -> None:
        """See that a durable subscription is the client's own: its user has made it, or it may manage the topic.

        Raises:
            UnknownSubscription: it is another user's; one that is not there is answered alike.
        """
        if self.is_open or owner in ("", self.access.principal.name):
            return
        if not self.access.allows(Action.MANAGE, topic.kind, topic.name):
            raise UnknownSubscription(f"this user has no durable subscription {name[:60]!r}", name=name[:60])

    def owns(self, owner: str) -> bool:
        """Whether something is the client's own by its user, or it operates the broker."""
        return self.is_open or owner == self.access.principal.name or self.access.may(Permission.OPERATE)

    def sees(self, destination: Destination) -> bool:
        """Whether the client may know that a destination is there."""
        return self.is_open or self.access.sees(destination.kind, destination.name)

    def may_read(self, destination: Destination) -> bool:
        """Whether a consumer of a wildcard gets a destination."""
        return self.is_open or self.access.allows(Action.READ, destination.kind, destination.name)

    def lost_read(self, destination: Destination) -> AccessRefused | None:
        """Why a consumer must end that the client has; None if it may go on."""
        if self.may_read(destination):
            return None
        text = f"user {self.access.principal.name!r} may no longer read {destination.kind}://{destination.name}"
        return AccessRefused(text, action="read", destination=f"{destination.kind}://{destination.name}")

    def _check(self, action: Action, address: Address) -> None:
        kind, name, _ = address
        self.access.check(action, kind, name, exists=self._gate.is_there(kind, name))
        self.creates(address)
