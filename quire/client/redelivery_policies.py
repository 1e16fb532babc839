"""The redelivery policies of a connection: one by default, others by destination."""

from collections.abc import Mapping

from quire.client.destinations import ClientDestination
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.destination_pattern import Pattern


class RedeliveryPolicies:
    """Finds the policy of a destination; of several patterns that match, the most specific one counts.

    Args:
        default: for destinations that no pattern matches.
        by_destination: policies by destination; the names may have wildcards.
    """

    def __init__(
        self, default: RedeliveryPolicy, by_destination: Mapping[ClientDestination, RedeliveryPolicy] | None = None
    ) -> None:
        self._default = default
        entries = [(Pattern(where.name), where, policy) for where, policy in (by_destination or {}).items()]
        self._entries = sorted(entries, key=lambda entry: entry[0].specificity)

    def policy(self, destination: ClientDestination) -> RedeliveryPolicy:
        """The policy of a destination."""
        for pattern, where, policy in self._entries:
            if where.is_topic == destination.is_topic and pattern.matches(destination.name):
                return policy
        return self._default
