"""Whether a message is admitted now: the one place that says so, for clients, operators and bulk writers."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from quire.broker.core.core import Core, HoldCause, Target
from quire.broker.core.subscription import Session
from quire.destination import Destination
from quire.errors import MessageTooLarge, ProducerHeld, TransactionTooLarge
from quire.settings import Policies


def refusal(core: Core, *, stored: bool) -> HoldCause | None:
    """The limit that keeps a message from being sent now; ``StoreError`` if the store takes no writes."""
    if stored and core.store_error is not None:
        raise core.store_error
    return core.hold_cause(stored=stored)


def must_wait(core: Core, session: Session, destination: str, *, stored: bool, in_transaction: bool) -> bool:
    """Hold a producer if a limit it is subject to is exceeded, until ``Session.resume``."""
    cause = refusal(core, stored=stored)
    if cause is None:
        return False
    limit = core.settings.store.limit
    if cause is HoldCause.STORE and in_transaction and core.transaction_bytes >= limit:
        # Consumers cannot make room, and this producer's commit would wait behind its send.
        text = f"the open transactions hold {limit} bytes of messages, as many as the store may (store.limit)"
        raise TransactionTooLarge(text, limit=limit)
    core.flow.hold(session, cause, destination.removeprefix("/queue/"))
    return True


def check_room(core: Core, destination: str = "", *, stored: bool) -> None:
    """See that a message can be sent now, for a sender that does not wait."""
    if (cause := refusal(core, stored=stored)) is not None:
        place = {"destination": destination} if destination else {}
        text = f"the broker accepts no messages{' for ' if destination else ''}{destination}: {cause}"
        raise ProducerHeld(text, cause=str(cause), **place)


class SizeLimit(NamedTuple):
    """How large the body of a message may be that a client sends to a destination (``max_message_size``)."""

    limit: int
    destination: Destination

    def check(self, size: int) -> None:
        if size > self.limit:
            text = f"a body of {size} bytes is too large for {self.destination}: its policy allows {self.limit}"
            raise MessageTooLarge(text, destination=str(self.destination), size=size, limit=self.limit)


def size_limit(policies: Policies, destinations: Iterable[Destination]) -> SizeLimit | None:
    """The least limit of some destinations; None for none."""
    limits = [SizeLimit(policies.of(destination).max_message_size, destination) for destination in destinations]
    return min([each for each in limits if each.limit], default=None, key=lambda each: (each.limit, str(each)))


class LimitedTarget:
    """Where clients send messages that may not be too large.

    Only routes of clients have it: what waits for its commit or its time, dead letters, and what operators move pass
    it by, whatever the policy says by then.
    """

    def __init__(self, target: Target, limit: SizeLimit) -> None:
        self.target = target
        self._limit = limit

    def check(self, content: bytes) -> None:
        """See that a message may be sent; its header lines do not count."""
        if len(content) > self._limit.limit:
            self._limit.check(len(content) - content.index(b"\n\n") - 2)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message, as ``Target``."""
        self.check(content)
        self.target.send(content, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Any:
        """Take a message that is given up elsewhere, as ``Target``."""
        return self.target.transfer(content, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here."""
        self.target.expect_groups()
