"""How long a failed message waits before it is delivered again."""

from random import Random
from typing import Protocol

from quire.settings import Policy

LONGEST = 100 * 365 * 86_400.0
"""No delay is longer, in seconds: times further away do not fit the records of every store."""


class RetryDelays(Protocol):
    """How long messages that failed wait."""

    def delay_ms(self, attempt: int) -> int:
        """How long a message waits before a retry, from 1, in milliseconds."""


def redelivery_delay(policy: Policy, failures: int, random: Random) -> float:
    """The delay before a message's next redelivery, as ActiveMQ's JMS client computes it.

    The first delay is ``initial_redelivery_delay``. Each later one is ``redelivery_delay``. Under exponential back-off
    it is the one before times the multiplier, up to ``maximum_redelivery_delay`` (``redelivery_delay`` if that is
    more), and ``redelivery_delay`` if the one before was 0. Collision avoidance varies all but the first, the maximum
    too. (``RedeliveryPolicy.getNextRedeliveryDelay``; there each step on the way is varied, so that back-off multiplies
    the variations. Here the result is varied, once.)

    Args:
        failures: how often the message has failed; at least 1.

    Returns:
        Seconds.
    """
    if failures <= 1:
        return min(policy.initial_redelivery_delay, LONGEST)
    grows = policy.use_exponential_back_off and policy.back_off_multiplier > 1
    delay = _backed_off(policy, failures) if grows else policy.redelivery_delay
    if policy.use_collision_avoidance:
        delay *= 1 + random.uniform(-1, 1) * policy.collision_avoidance_factor
    return min(delay, LONGEST)


def redelivery_delay_ms(policy: Policy, failures: int, random: Random) -> int:
    """As ``redelivery_delay``, in milliseconds."""
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
