"""Which policies apply to a destination, and which value comes from which."""

from collections.abc import Mapping
from typing import Annotated, Any

from quire.destination import Destination
from quire.resources import Status, doc
from quire.settings import KEYS, Policies, Setting
from quire.settings.policy import PolicyEntry


class PolicyValue(Status, frozen=True):
    """A key of a policy."""

    key: Annotated[str, doc("The key, as in ``[policy]`` of the settings file.")]
    value: Annotated[Any, doc("Its value.")]
    origin: Annotated[str, doc("Where the value comes from: default, a file, the environment, a flag, an entry.")]
    text: Annotated[str, doc("What the key means.")]


class AppliedEntry(Status, frozen=True):
    """An entry of ``[[policies]]`` that matches a destination."""

    destination: Annotated[str, doc("Its pattern.")]
    origin: Annotated[str, doc("Where it is written.")]
    applies: Annotated[list[str], doc("The keys whose value comes from it.")]
    overridden: Annotated[list[str], doc("The keys that it sets too, and a more specific entry sets as well.")]


class EntryView(Status, frozen=True):
    """An entry of ``[[policies]]``."""

    destination: Annotated[str, doc("Its pattern.")]
    origin: Annotated[str, doc("Where it is written.")]
    values: Annotated[dict[str, Any], doc("The keys that it sets.")]


class PolicyList(Status, frozen=True):
    """All policies: what holds everywhere, and the entries, the most specific one first."""

    base: list[PolicyValue]
    entries: list[EntryView]


class DestinationPolicy(Status, frozen=True):
    """The policy of one destination, which need not be there."""

    destination: Annotated[str, doc("The destination.")]
    entries: Annotated[list[AppliedEntry], doc("The entries that match, the most specific one first.")]
    values: Annotated[list[PolicyValue], doc("All keys with their values.")]


def all_policies(policies: Policies) -> PolicyList:
    base = [
        PolicyValue(key, getattr(policies.base, key), policies.origins.get(key, "default"), text)
        for key, text in _texts().items()
    ]
    entries = [EntryView(_written(entry), entry.origin, dict(entry.values)) for entry in policies.ranked()]
    return PolicyList(base, entries)


def policy_of(policies: Policies, destination: Destination) -> DestinationPolicy:
    """The policy of a destination, and where each value comes from."""
    texts = _texts()
    found = policies.explain(destination)
    values = [_value(setting, texts) for setting in found]
    deciding: dict[str, PolicyEntry] = {}
    entries = []
    for entry in policies.ranked(destination):
        applies = [key for key in entry.values if key not in deciding]
        deciding.update(dict.fromkeys(applies, entry))
        overridden = [key for key in entry.values if key not in applies]
        entries.append(AppliedEntry(_written(entry), entry.origin, applies, overridden))
    return DestinationPolicy(str(destination), entries, values)


def _texts() -> dict[str, str]:
    prefix = "policy."
    return {name.removeprefix(prefix): key.text for name, key in KEYS.items() if name.startswith(prefix)}


def _value(setting: Setting, texts: Mapping[str, str]) -> PolicyValue:
    key = setting.key.removeprefix("policy.")
    return PolicyValue(key, setting.value, setting.origin, texts[key])


def _written(entry: PolicyEntry) -> str:
    return entry.pattern.text if entry.kind is None else f"{entry.kind}://{entry.pattern.text}"
