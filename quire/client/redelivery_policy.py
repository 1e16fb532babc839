"""How often and after which delays a rolled back message is delivered again."""

from dataclasses import dataclass
from random import Random

from quire.client.arguments import check_flag, check_number, check_whole


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """The redelivery policy of a consumer, with the parameters of ActiveMQ's ``RedeliveryPolicy``; delays are in ms.

    Attributes:
        maximum_redeliveries: after so many redeliveries the message is poison, and a dead letter; -1: no maximum.
        initial_redelivery_delay: before the first redelivery, in ms.
        redelivery_delay: before each later one, in ms.
        maximum_redelivery_delay: what an exponential delay grows to at most, in ms; -1: without a limit.
        use_exponential_back_off: multiply each delay by ``back_off_multiplier``.
        back_off_multiplier: the factor.
        use_collision_avoidance: vary each delay at random.
        collision_avoidance_factor: by which share of it at most, up or down.
        pre_dispatch_check: a transacted consumer gives a message that comes with too many redeliveries back at once.
    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay: int = 1000
    redelivery_delay: int = 1000
    maximum_redelivery_delay: int = -1
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    use_collision_avoidance: bool = False
    collision_avoidance_factor: float = 0.15
    pre_dispatch_check: bool = True

    def __post_init__(self) -> None:
        for limit in ("maximum_redeliveries", "maximum_redelivery_delay"):
            check_whole(limit, getattr(self, limit), -1)
        for delay in ("initial_redelivery_delay", "redelivery_delay"):
            check_whole(delay, getattr(self, delay), 0)
        for flag in ("use_exponential_back_off", "use_collision_avoidance", "pre_dispatch_check"):
            check_flag(flag, getattr(self, flag))
        check_number("back_off_multiplier", self.back_off_multiplier, 0)
        check_number("collision_avoidance_factor", self.collision_avoidance_factor, 0, 1)

    def is_exceeded(self, redeliveries: int) -> bool:
        """Whether a message that was delivered again so often is poison."""
        return self.maximum_redeliveries != -1 and redeliveries > self.maximum_redeliveries

    def next_delay(self, previous: int, random: Random) -> int:
        """The delay that follows on another one.

        Args:
            previous: the delay before, in ms.
            random: for the avoidance of collisions.

        Returns:
            Milliseconds.
        """
        delay = float(self.redelivery_delay)
        if previous > 0 and self.use_exponential_back_off and self.back_off_multiplier > 1:
            delay = previous * self.back_off_multiplier
            if self.maximum_redelivery_delay != -1 and delay > self.maximum_redelivery_delay:
                delay = max(self.maximum_redelivery_delay, self.redelivery_delay)
        if self.use_collision_avoidance:
            share = self.collision_avoidance_factor * random.random()
            delay += delay * (share if random.random() < 0.5 else -share)
        return int(min(delay, 2**53))

    def delay(self, redeliveries: int, random: Random) -> int:
        """The delay before a redelivery.

        Args:
            redeliveries: which one, from 1.
            random: for the avoidance of collisions.

        Returns:
            Milliseconds.
        """
        delay = self.initial_redelivery_delay
        # Every delay after the first few is the same, or has reached what can be waited for.
        for _ in range(min(redeliveries - 1, 1000)):
            delay = self.next_delay(delay, random)
        return delay
