"""What a consumer group got of a stream, and what its progress was."""

from collections import defaultdict

from tests.acceptance.crash.ledger import Key


class StreamLog:
    """Follows one consumer group.

    Args:
        name: of the stream and the group, for people.

    Attributes:
        violations: promises that were broken, for people.
        keys: what was received, by partition and offset.
    """

    def __init__(self, name: str) -> None:
        self.violations: list[str] = []
        self.keys: dict[tuple[int, int], Key] = {}
        self._name = name
        self._last: defaultdict[int, int] = defaultdict(int)
        self._bases: defaultdict[int, int] = defaultdict(int)

    def deliver(self, partition: int, offset: int, key: Key, is_redelivered: bool) -> None:
        """A member got a message."""
        known = self.keys.setdefault((partition, offset), key)
        if known != key:
            self.violations.append(f"{self._name}: offset {offset} of {partition} had {known}, and has {key}")
        if not is_redelivered:
            if offset <= self._last[partition]:
                found = f"offset {offset} of {partition} came out of order, after {self._last[partition]}"
                self.violations.append(f"{self._name}: {found}")
            self._last[partition] = max(offset, self._last[partition])

    def progress(self, partition: int, base: int) -> None:
        """The broker says up to which offset the group has finished a partition."""
        if base < self._bases[partition]:
            found = f"progress of {partition} went back from {self._bases[partition]} to {base}"
            self.violations.append(f"{self._name}: {found}")
        self._bases[partition] = base

    def compare(self, stored: dict[tuple[int, int], Key]) -> None:
        """All that is stored must have come, and nothing else."""
        for place in sorted(stored.keys() - self.keys.keys()):
            self.violations.append(f"{self._name}: a gap, {place} did not come: {stored[place]}")
        for place in sorted(self.keys.keys() - stored.keys()):
            self.violations.append(f"{self._name}: {place} came and is not stored: {self.keys[place]}")
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for (partition, offset), key in sorted(stored.items()):
            before = last.get((key.producer, partition), (0, 0))
            if (key.attempt, key.number) <= before:
                self.violations.append(f"{self._name}: {key} is stored out of order, at {offset} of {partition}")
            last[key.producer, partition] = (key.attempt, key.number)
