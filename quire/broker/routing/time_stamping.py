"""Times to live by policy: messages without one get one, and none is longer than the policy allows."""

from quire.broker.core.services import Target
from quire.clock import Clock
from quire.settings import Policy


class TimeStampingTarget:
    """A target whose policy changes when messages expire (ActiveMQ's ``TimeStampingBrokerPlugin``).

    Dead letters and what an operator moves do not come through here: their expiration stays.
    """

    def __init__(self, target: "Target", policy: Policy, clock: Clock) -> None:
        self._target = target
        self._override_ms = round(policy.zero_expiration_override * 1000)
        self._ceiling_ms = round(policy.ttl_ceiling * 1000)
        self._future_only = policy.future_only
        self._clock = clock

    @staticmethod
    def is_asked_for(policy: Policy) -> bool:
        """Whether a policy changes expirations."""
        return bool(policy.zero_expiration_override or policy.ttl_ceiling)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message, as ``Target``."""
        self._target.send(content, self._stamped(expiration), priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message that is given up elsewhere, as ``Target``."""
        self._target.transfer(content, self._stamped(expiration), priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here."""
        self._target.expect_groups()

    def _stamped(self, expiration: int) -> int:
        """When a message expires as the policy wants it."""
        now = self._clock.now_ms()
        lives = expiration - now if expiration else self._override_ms
        if self._ceiling_ms:
            lives = min(lives, self._ceiling_ms)
        wanted = now + lives
        if lives <= 0 or wanted == expiration or (self._future_only and wanted < expiration):
            return expiration
        return wanted
