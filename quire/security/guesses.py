"""Slows guesses down: after failed logins the next ones wait. Nothing is locked, so no one can lock out another."""

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from quire.clock import Clock

KEPT = 20_000
"""Of how many names and addresses failures are remembered; the oldest are forgotten first."""

FORGET_AFTER = 900.0
"""After so many seconds without a failure, those before do not count."""

FIRST_DELAY = 0.25
"""How many seconds the second guess of a name from an address waits; each later one waits twice as long."""

LONGEST_DELAY = 60.0
NAME_DELAY = 0.1
"""How many seconds pass between guesses of one name from all addresses, after some failures."""

ADDRESS_DELAY = 0.25
"""The same for all names from one address."""

TOLERATED = 10
"""How many failures of a name alone, or of an address alone, cost nothing."""

LONGEST_NAME = 200
"""So many characters of a name count: no user has a longer one."""


class _Scope(Enum):
    BOTH = "a name from an address"
    NAME = "a name"
    ADDRESS = "an address"


_Key = tuple[_Scope, str, str]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0  # when the last one was
    next: float = 0.0  # when the next guess may be made


class Guesses:
    """The failures by (name, address), by name and by address.

    Attributes:
        failed_total: how many logins have failed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        self.failed_total = 0

    def wait(self, name: str, address: str) -> float:
        """How many seconds a guess has to wait. Nothing is changed."""
        now = self._clock.monotonic()
        return max([failures.next - now for _, failures in self._found(name, address)] + [0.0])

    def begin(self, name: str, address: str) -> float:
        """A guess is about to be made: in how many seconds. The next one has to wait for longer."""
        start = self._clock.monotonic() + self.wait(name, address)
        for key, failures in self._found(name, address):
            failures.next = start + _delay(key, failures.count)
        return start - self._clock.monotonic()

    def failed(self, name: str, address: str) -> int:
        """A guess was wrong; how many were, of this name from this address."""
        self.failed_total += 1
        now = self._clock.monotonic()
        for key in _keys(name, address):
            failures = self._failures.setdefault(key, _Failures())
            if now - failures.last > FORGET_AFTER:
                failures.count = 0
            failures.count += 1
            failures.last = now
            failures.next = max(failures.next, now + _delay(key, failures.count))
            self._failures.move_to_end(key)
        while len(self._failures) > KEPT:
            self._failures.popitem(last=False)
        return self._failures[_Scope.BOTH, name[:LONGEST_NAME], address].count

    def succeeded(self, name: str, address: str) -> None:
        """It was right: what this address failed of this name is forgiven."""
        self._failures.pop((_Scope.BOTH, name[:LONGEST_NAME], address), None)

    def _found(self, name: str, address: str) -> list[tuple[_Key, _Failures]]:
        return [(key, self._failures[key]) for key in _keys(name, address) if key in self._failures]


def _keys(name: str, address: str) -> tuple[_Key, ...]:
    name = name[:LONGEST_NAME]
    return (_Scope.BOTH, name, address), (_Scope.NAME, name, ""), (_Scope.ADDRESS, "", address)


def _delay(key: _Key, count: int) -> float:
    if key[0] is _Scope.BOTH:
        return min(FIRST_DELAY * 2.0 ** min(count - 1, 30), LONGEST_DELAY)
    if count <= TOLERATED:
        return 0.0
    return NAME_DELAY if key[0] is _Scope.NAME else ADDRESS_DELAY
