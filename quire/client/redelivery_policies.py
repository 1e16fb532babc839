"""The redelivery policies of a connection: one by default, others by destination."""

from collections.abc import Mapping
from typing import TypeAlias

from quire.client.arguments import refused
from quire.client.destinations import ClientDestination, client_destination
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.destination_pattern import Pattern

PoliciesByDestination: TypeAlias = Mapping[ClientDestination | str, RedeliveryPolicy]
"""Policies by destination; a text is the name of a queue, or begins with ``topic://`` or ``stream://``."""


class RedeliveryPolicies:
    """Finds the policy of a destination; of several patterns that match, the most specific one counts.

    Args:
        default: for destinations that no pattern matches.
        by_destination: policies by destination; the names may have wildcards.
    """

    def __init__(self, default: RedeliveryPolicy, by_destination: PoliciesByDestination | None = None) -> None:
        self._default = default
        if not isinstance(by_destination, Mapping | None):
            raise refused("policies", by_destination, "a mapping from destinations to policies")
        entries = []
        for given, policy in (by_destination or {}).items():
            if not isinstance(policy, RedeliveryPolicy):
                raise refused("policies", policy, "a RedeliveryPolicy for each destination")
            where = client_destination(given, "policies")
            entries.append((Pattern(where.name), where, policy))
        self._entries = sorted(entries, key=lambda entry: entry[0].specificity)

    def policy(self, destination: ClientDestination) -> RedeliveryPolicy:
        """The policy of a destination."""
        for pattern, where, policy in self._entries:
            if where.is_topic == destination.is_topic and pattern.matches(destination.name):
                return policy
        return self._default
