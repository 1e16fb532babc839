"""Which policy a destination has: ``[policy]``, and over it the matching entries of ``[[policies]]``, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quire.destination import Destination, DestinationKind, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings
from quire.settings.key import Refused, Setting, entries_of, keys_of, throw, unknown
from quire.settings.policy import Policy

CACHED = 10_000
"""Of how many destinations the policy is remembered; with more the memory begins anew."""

_KEYS = {key.name: key for key in keys_of(Policy)}


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One entry of ``[[policies]]``."""

    kind: DestinationKind | None  # the kind of destination it is for; None for every kind
    pattern: Pattern  # the names it is for
    values: Mapping[str, Any]  # the keys of ``Policy`` that it sets
    origin: str  # ``policy PATTERN (file NAME, entry N)``

    def matches(self, destination: Destination) -> bool:
        """Whether it is for a destination."""
        return self.kind in (None, destination.kind) and self.pattern.matches(destination.name)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of all destinations.

    Attributes:
        base: ``[policy]``: what holds where no entry says anything else.
        entries: ``[[policies]]``, in the order of the file.
        origins: where values of ``base`` come from that are no defaults, by key.

    Raises:
        InvalidSettings: keys contradict each other, in ``base`` or where an entry holds.
    """

    base: Policy = field(default_factory=Policy)
    entries: tuple[PolicyEntry, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    _ranked: list[PolicyEntry] = field(init=False, compare=False, repr=False)
    _cache: dict[Destination, Policy] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ranked = sorted(enumerate(self.entries), key=_rank, reverse=True)
        object.__setattr__(self, "_ranked", [entry for _, entry in ranked])
        for sample in self._samples():
            for key, wrong in self.of(sample).contradictions().items():
                setting = next(setting for setting in self.explain(sample) if setting.key == f"policy.{key}")
                raise InvalidSettings(
                    f"{key} = {setting.value!r} ({setting.origin}) {wrong}",
                    key=setting.key, value=setting.value, origin=setting.origin,
                )  # fmt: skip

    def of(self, destination: Destination) -> Policy:
        """The policy of a destination: the matching entries, the most specific one last, each key for itself.

        A literal part is more specific than ``*``, and ``*`` than ``>`` (``Pattern.specificity``). Of two entries with
        the same pattern the one with a prefix is more specific, then the later one.
        """
        policy = self._cache.get(destination)
        if policy is None:
            values = {key: value for entry in self._matching(destination) for key, value in entry.values.items()}
            policy = replace(self.base, **values) if values else self.base
            if len(self._cache) >= CACHED:
                self._cache.clear()
            self._cache[destination] = policy
        return policy

    def explain(self, destination: Destination) -> list[Setting]:
        """Every key of the policy of a destination with its value and origin, in the order of ``Policy``."""
        found = {
            name: Setting(f"policy.{name}", getattr(self.base, name), self.origins.get(name, "default"))
            for name in _KEYS
        }
        for entry in self._matching(destination):
            for name, value in entry.values.items():
                found[name] = Setting(f"policy.{name}", value, entry.origin)
        return list(found.values())

    def ranked(self, destination: Destination | None = None) -> list[PolicyEntry]:
        """The entries, the most specific one first: all, or those that match a destination."""
        return [entry for entry in reversed(self._ranked) if destination is None or entry.matches(destination)]

    def _matching(self, destination: Destination) -> Iterator[PolicyEntry]:
        return (entry for entry in self._ranked if entry.matches(destination))

    def _samples(self) -> Iterator[Destination]:
        """A destination for each entry, and one for none. No pattern has a ``?``, so only wildcards match that part."""
        for kind in (DestinationKind.QUEUE, DestinationKind.TOPIC):
            yield Destination(kind, "?")
            for entry in self.entries:
                if entry.kind in (None, kind):
                    parts = entry.pattern.text.split(".")
                    yield Destination(kind, ".".join("?" if part in ("*", ">") else part for part in parts))


def _rank(numbered: tuple[int, PolicyEntry]) -> tuple[Any, ...]:
    number, entry = numbered
    return entry.pattern.specificity, entry.kind is None, -number


def read_policies(tables: object, origin: str, refused: Refused = throw) -> tuple[PolicyEntry, ...]:
    """Read the entries of ``[[policies]]``; ``origin`` is ``file NAME``, and ``refused`` is told the faults."""

    def read(table: Mapping[str, Any], number: int) -> PolicyEntry:
        return _entry(table, f"{origin}, entry {number}", refused)

    return tuple(entries_of(tables, "policies", origin, read, refused))


def _entry(table: Mapping[str, Any], origin: str, refused: Refused) -> PolicyEntry:
    written = table.get("destination")
    try:
        if not isinstance(written, str):
            raise InvalidDestination('an entry of [[policies]] needs destination = "PATTERN"')
        kind, text = split_prefix(written)
        pattern = Pattern(text)
    except InvalidDestination as error:
        raise InvalidSettings(
            f"destination = {written!r} ({origin}) is not allowed: {error}",
            key="policies.destination", value=written, origin=origin,
        ) from error  # fmt: skip
    origin = f"policy {written} ({origin})"
    values = {}
    for name, value in table.items():
        try:
            if name in _KEYS:
                values[name] = _KEYS[name].read(value, origin).value
            elif name != "destination":
                raise unknown(name, origin, _KEYS)
        except InvalidSettings as error:
            refused(error)
    return PolicyEntry(kind, pattern, values, origin)
