"""What becomes of a message that cannot be delivered: its dead letter."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from quire.broker.core.core import Core, DestinationLedger
from quire.destination import Destination, DestinationKind, checked
from quire.errors import InvalidDestination
from quire.message import Message, with_headers
from quire.settings import Policies, Policy

CAUSE = "dlqDeliveryFailureCause"
"""The header that says why a message became a dead letter (ActiveMQ's name for it)."""

DUPLICATE = "duplicate suppressed by the client"
"""How the cause begins of a message that a client took for one that it had before. Its handling did not fail."""

ORIGIN = "original-destination"
"""The header that says which queue a dead letter comes from (ActiveMQ's name for it)."""

EXPIRATION = "original-expiration"
"""The header that keeps a dead letter's expiration; the dead letter itself does not expire."""


ORIGINAL_MODE = "originalDeliveryMode"
"""The header that says that a dead letter was a non-persistent message (ActiveMQ's name for it)."""

LETTER_HEADERS = frozenset({CAUSE, ORIGIN, EXPIRATION, ORIGINAL_MODE})
"""The headers that say where a message comes from, and why: a redrive believes them, so only the broker writes them."""


class Origin(Protocol):
    """Where messages are that cannot be delivered: a queue, a topic, a durable subscription.

    Attributes:
        destination: its address.
        policy: says what becomes of them.
        expired: how many have expired.
        dead_lettered: how many became dead letters, without those that clients suppressed.
        suppressed: how many became dead letters because clients suppressed them as duplicates.
    """

    destination: Destination
    policy: Policy
    expired: int
    dead_lettered: int
    suppressed: int

    @property
    def ledger(self) -> "DestinationLedger | None":
        """Where events of its messages are noted; None if they are not."""

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether this is where dead letters go; a message that fails here stays here."""


def needs_expired(core: Core, origin: Origin, *, persistent: bool) -> bool:
    """Whether the contents of expired messages are needed: for dead letters, or for advisories with subscribers.

    Args:
        persistent: whether they are persistent.
    """
    policy = origin.policy
    if core.advisories.tells_expired(origin.destination, policy):
        return True
    becomes_letter = policy.process_expired and policy.dead_letter_strategy != "discarding"
    return persistent and becomes_letter and not origin.is_dead_letter_queue


def send_dead_letters(
    core: Core, origin: Origin, messages: list[Message], reason: str, cause: str, *, subscriber: str = ""
) -> None:
    """Make the dead letters of messages that are being removed, in the same commit.

    Args:
        reason: ``expired``, ``duplicate`` (a client suppressed them), or ``failed``.
        subscriber: whose they are, if they are of a durable subscription.
    """
    policy = origin.policy
    if origin.ledger is not None:
        origin.ledger.ended(messages, reason)
    if reason == "expired":
        origin.expired += len(messages)
        for message in messages:
            core.advisories.expired(origin.destination, policy, message)
        if not policy.process_expired or origin.is_dead_letter_queue:
            return
        messages = [message for message in messages if message.persistent]
    elif not policy.process_non_persistent:
        messages = [message for message in messages if message.persistent]
    if not messages or policy.dead_letter_strategy == "discarding":
        return
    address = dead_letter_destination(origin.destination, policy, subscriber)
    with core.limits.own_work():
        letters = (
            core.directory.queue(address.name)
            if address.kind is DestinationKind.QUEUE
            else core.directory.topic(address.name)
        )
    if reason == "duplicate":
        origin.suppressed += len(messages)
    else:
        origin.dead_lettered += len(messages)
    lives = round(policy.dead_letter_expiration * 1000)
    for message in messages:
        letter = dead_letter(message, origin.destination, cause)
        letters.transfer(letter, core.clock.now_ms() + lives if lives else 0, message.priority, True)
        core.advisories.dead_lettered(origin.destination, policy, message, address, cause)


def dead_letter_destination(origin: Destination, policy: Policy, subscriber: str = "") -> Destination:
    """Where the dead letters of a destination go.

    With the strategy ``individual`` a name may come out that is none: too long, or with what a client id may have and a
    name may not. Then they go to the shared queue.

    Args:
        subscriber: the client id and name of a durable subscription, joined by a dot; empty for others.
    """
    shared = Destination(DestinationKind.QUEUE, policy.dead_letter_queue)
    if policy.dead_letter_strategy == "shared":
        return shared
    if origin.kind is DestinationKind.QUEUE:
        uses_queue, prefix, suffix = policy.use_queue_for_queue_messages, policy.queue_prefix, policy.queue_suffix
    else:
        uses_queue, prefix, suffix = policy.use_queue_for_topic_messages, policy.topic_prefix, policy.topic_suffix
    own = f".{subscriber}" if subscriber and policy.destination_per_durable_subscriber else ""
    try:
        kind = DestinationKind.QUEUE if uses_queue else DestinationKind.TOPIC
        return checked(kind, f"{prefix}{origin.name}{own}{suffix}")
    except InvalidDestination:
        return shared


def is_dead_letter_queue(destination: Destination, policy: Policy) -> bool:
    """Whether dead letters go to a destination, by the policy that applies to it; they never go to a stream."""
    if destination.kind is DestinationKind.STREAM:
        return False
    name = destination.name
    return name == policy.dead_letter_queue or any(
        [bool(prefix) and name.startswith(prefix) for prefix in (policy.queue_prefix, policy.topic_prefix)]
    )


def dead_letter_names(policies: Policies) -> Callable[[Destination], bool]:
    """Whether the dead letters of any destination go to one, by the names that all policies give."""
    shared, affixes = set[str](), set[tuple[str, str]]()
    for values in ({}, *[entry.values for entry in policies.entries]):
        policy = replace(policies.base, **values)
        shared.add(policy.dead_letter_queue)
        affixes |= {(policy.queue_prefix, policy.queue_suffix), (policy.topic_prefix, policy.topic_suffix)}
    affixes.discard(("", ""))

    def is_one(destination: Destination) -> bool:
        name = destination.name
        return destination.kind is not DestinationKind.STREAM and (
            name in shared or any([name.startswith(prefix) and name.endswith(suffix) for prefix, suffix in affixes])
        )

    return is_one


def dead_letter(message: Message, origin: Destination, cause: str) -> bytes:
    """The content of a message's dead letter."""
    added = {ORIGIN: f"/{origin.kind}/{origin.name}", CAUSE: cause}
    if message.expiration:
        added[EXPIRATION] = str(message.expiration)
    if not message.persistent:
        added[ORIGINAL_MODE] = "NON_PERSISTENT"
    return with_headers(message.content, added)


def redriven(content: bytes) -> bytes:
    """The content of a dead letter that goes back where it came from: without what made it a dead letter."""
    end = content.index(b"\n\n")
    gone = {name.encode() for name in LETTER_HEADERS}
    if content.find(b"\n" + ORIGIN.encode() + b":/stream/", 0, end) >= 0:  # it goes to its partition, as a new message
        gone |= {b"group", b"offset"}
    kept = [line for line in content[:end].split(b"\n") if line.partition(b":")[0] not in gone]
    return b"\n".join(kept) + content[end:]
