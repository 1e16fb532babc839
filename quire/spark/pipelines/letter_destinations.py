"""Where dead letters are: the destinations that policies send them to, and those of consumer groups."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quire.destination import DestinationKind, split_prefix
from quire.settings import Policy
from quire.spark.pipelines.place import Place

GROUP_PREFIX = "%DLQ%"
"""How the dead letter queue of a consumer group begins; the group's name follows."""


def letter_destinations(place: Place) -> list[str]:
    """The destinations with dead letters, by the policies of the broker.

    A store does not have the policies; then these are the destinations with the names that the defaults give.
    """
    policies = place.policies() if place.url else [{}]
    is_one = named_by(policies)
    return [name for name in place.destinations() if is_one(name)]


def named_by(policies: Iterable[Mapping[str, Any]]) -> Callable[[str], bool]:
    """Whether dead letters go to a destination, by the values that policies set; all else is the default."""
    shared, affixes = set[str](), {(GROUP_PREFIX, "")}
    default = Policy()
    for values in policies:

        def value(key: str, values: Mapping[str, Any] = values) -> str:
            return str(values.get(key, getattr(default, key)))

        shared.add(value("dead_letter_queue"))
        affixes |= {(value(f"{kind}_prefix"), value(f"{kind}_suffix")) for kind in ("queue", "topic")}
    affixes.discard(("", ""))

    def is_one(address: str) -> bool:
        kind, name = split_prefix(address)
        return kind is not DestinationKind.STREAM and (
            name in shared or any([name.startswith(prefix) and name.endswith(suffix) for prefix, suffix in affixes])
        )

    return is_one
