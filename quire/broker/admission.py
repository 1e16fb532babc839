"""Whether a message is admitted now: the one place that says so, for clients, operators and bulk writers."""

from quire.broker.core.core import Core, HoldCause
from quire.broker.core.subscription import Session
from quire.errors import ProducerHeld, TransactionTooLarge


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
