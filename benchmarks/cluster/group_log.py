"""What a queue's message groups must look like to its consumers, over all lost connections."""

from collections import defaultdict


class GroupLog:
    """Follows the groups of one queue.

    Messages of a group have ascending numbers. A holder is one connection of a consumer.

    Attributes:
        violations: promises that were broken, for people.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._last: dict[str, int] = {}
        self._open: defaultdict[str, dict[int, object]] = defaultdict(dict)  # not acknowledged: who has it

    def deliver(self, group: str, number: int, holder: object, is_redelivered: bool) -> None:
        """A holder got a message."""
        held = self._open[group]
        if not is_redelivered:
            if number <= self._last.get(group, 0):
                self.violations.append(f"{group} {number} came out of order, after {self._last[group]}")
            others = [each for each, who in held.items() if each < number and who is not holder]
            if others:
                self.violations.append(f"{group} {number} came to a second consumer while a first one has {others[:5]}")
            self._last[group] = max(number, self._last.get(group, 0))
        held[number] = holder

    def lost(self, holder: object) -> None:
        """The connection of a holder is gone: what it had may have gone to another one before it knew."""
        for held in self._open.values():
            for number in [number for number, who in held.items() if who is holder]:
                del held[number]

    def acknowledge(self, group: str, number: int) -> None:
        """The holder sends an acknowledgement: from now on the group may go to another consumer."""
        self._open[group].pop(number, None)
