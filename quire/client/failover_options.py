"""The options of ``failover:`` URLs."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """How a connection is made again, with ActiveMQ's names and defaults; all times are in milliseconds.

    Attributes:
        initial_reconnect_delay: before the second attempt; the first is made at once.
        max_reconnect_delay: what the delay grows to.
        use_exponential_back_off: each delay is the one before times ``reconnect_delay_exponent``.
        reconnect_delay_exponent: the factor.
        max_reconnect_attempts: after so many rounds over all brokers the connection fails; -1: never; 0: it is not
            made again.
        startup_max_reconnect_attempts: the same for the first connection; -1: as ``max_reconnect_attempts``.
        timeout: after which time without a connection sends fail; -1: they wait.
        randomize: the brokers are tried in random order.
        backup: keep sockets to other brokers open, so that connecting again takes no time.
        backup_pool_size: how many of them.
        priority_backup: go back to a preferred broker as soon as it answers again.
        priority_uris: the preferred brokers, joined by commas; by default the first one of the URL.
        track_messages: keep messages that were sent without an answer, and send them again.
        max_cache_size: how many bytes of those are kept.
        update_uris_supported: take the brokers of the cluster that the broker names into the list.
        rebalance_update_uris: go to another broker when the broker says that the cluster is to be rebalanced.
        reconnect_supported: go to another broker when the broker sends the connection there.
        warn_after_reconnect_attempts: after so many rounds, and their multiples, the log has a warning; 0: never.
    """

    initial_reconnect_delay: int = 10
    max_reconnect_delay: int = 30_000
    use_exponential_back_off: bool = True
    reconnect_delay_exponent: float = 2.0
    max_reconnect_attempts: int = -1
    startup_max_reconnect_attempts: int = -1
    timeout: int = -1
    randomize: bool = True
    backup: bool = False
    backup_pool_size: int = 1
    priority_backup: bool = False
    priority_uris: str = field(default="", metadata={"option": "priorityURIs"})
    track_messages: bool = False
    max_cache_size: int = 128 * 1024
    update_uris_supported: bool = field(default=True, metadata={"option": "updateURIsSupported"})
    rebalance_update_uris: bool = field(default=True, metadata={"option": "rebalanceUpdateURIs"})
    reconnect_supported: bool = True
    warn_after_reconnect_attempts: int = 10

    def delay_ms(self, rounds: int) -> float:
        """The delay after so many failed rounds, from 1, in milliseconds."""
        delay = float(self.initial_reconnect_delay)
        if self.use_exponential_back_off:
            # A larger exponent overflows, and the limit is reached long before.
            delay *= self.reconnect_delay_exponent ** min(rounds - 1, 100)
        return min(delay, self.max_reconnect_delay)

    def limit(self, first: bool) -> int:
        """After how many rounds the connection fails; -1: never."""
        if first and self.startup_max_reconnect_attempts != -1:
            return self.startup_max_reconnect_attempts
        return self.max_reconnect_attempts
