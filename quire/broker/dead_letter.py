"""What becomes of a message that was not acknowledged: when it is delivered again; or its dead letter."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
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
        suppressed: how many became dead letters because clients suppressed them as duplicates.
    """

    destination: Destination
    policy: Policy
    expired: int
    dead_lettered: int
    suppressed: int

    @property
    def ledger(self) -> "DestinationLedger | None": ...

    @property
    def is_dead_letter_queue(self) -> bool: ...


def needs_expired(core: Core, origin: Origin, *, persistent: bool) -> bool:
    """Whether the contents of expired messages are needed: for dead letters, or for advisories with subscribers."""
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


LONGEST = 100 * 365 * 86_400.0
"""No delay is longer, in seconds: times further away do not fit the records of every store."""


class RetryDelays(Protocol):
    def delay_ms(self, attempt: int) -> int:
        """How long a message waits before a retry, from 1, in milliseconds."""


def redelivery_delay(policy: Policy, failures: int, random: Random) -> float:
    """The delay before a message's next redelivery, as ActiveMQ's JMS client computes it.

    The first delay is ``initial_redelivery_delay``. Each later one is ``redelivery_delay``. Under exponential back-off
    it is the one before times the multiplier, up to ``maximum_redelivery_delay`` (``redelivery_delay`` if that is
    more), and ``redelivery_delay`` if the one before was 0. Collision avoidance varies all but the first, the maximum
    too. (``RedeliveryPolicy.getNextRedeliveryDelay``; there each step on the way is varied, so that back-off multiplies
    the variations. Here the result is varied, once.)
    """
    if failures <= 1:
        return min(policy.initial_redelivery_delay, LONGEST)
    grows = policy.use_exponential_back_off and policy.back_off_multiplier > 1
    delay = _backed_off(policy, failures) if grows else policy.redelivery_delay
    if policy.use_collision_avoidance:
        delay *= 1 + random.uniform(-1, 1) * policy.collision_avoidance_factor
    return min(delay, LONGEST)


def redelivery_delay_ms(policy: Policy, failures: int, random: Random) -> int:
    return round(redelivery_delay(policy, failures, random) * 1000)


def _backed_off(policy: Policy, failures: int) -> float:
    first, steps = policy.initial_redelivery_delay, failures - 1
    if first == 0:
        first, steps = policy.redelivery_delay, failures - 2
    try:
        delay = first * policy.back_off_multiplier**steps
    except OverflowError:
        delay = LONGEST if first else 0.0
    # A delay that is no product stands above the maximum, as it does in the client.
    if steps and 0 <= policy.maximum_redelivery_delay < delay:
        return max(policy.maximum_redelivery_delay, policy.redelivery_delay)
    return delay


def count_deliveries(
    messages: list[Message], failed: int, cause: str, maximum: int,
    dead_letter: Callable[[list[Message], str, str], None],
) -> tuple[list[Message], int]:  # fmt: skip
    """Count a delivery of each, and of the first ones a failure; those that failed too often are dead letters. The
    others, and how many of them failed.
    """
    poison: list[Message] = []
    for index, message in enumerate(messages):
        message.redelivered = True
        message.deliveries += 1
        message.failures += index < failed
        if 0 <= maximum < message.failures:
            poison.append(message)
    if not poison:
        return messages, failed
    text = f"delivery failed {poison[0].failures} times, the maximum is {maximum}: {cause}"
    dead_letter(poison, "failed", text)
    sequences = {message.sequence for message in poison}
    failed -= len([message for message in messages[:failed] if message.sequence in sequences])
    return [message for message in messages if message.sequence not in sequences], failed
