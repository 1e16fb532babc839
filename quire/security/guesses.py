"""Slows guesses down: after failed logins the next ones wait. Nothing is locked, so no one can lock out another.

What cannot be a guess is no part of it, and waits for none: a token has 256 bits; a password that was wrong before says
nothing new. Where a user has logged in before, only the failures of its own name count.
"""

from collections import OrderedDict
from collections.abc import Sequence
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
    NO_GUESS = "from an address, what is no guess: it makes nothing wait"


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
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()  # names, and from where they have logged in
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
        return self._count(_keys(name, address))

    def failed_without_a_guess(self, address: str) -> int:
        """What was wrong can be no guess; how much of that came from this address."""
        return self._count([(_Scope.NO_GUESS, "", address)])

    def _count(self, keys: Sequence[_Key]) -> int:
        """Count a failure for all keys; how many the first one has."""
        self.failed_total += 1
        now = self._clock.monotonic()
        for key in keys:
            failures = self._failures.setdefault(key, _Failures())
            if now - failures.last > FORGET_AFTER:
                failures.count = 0
            failures.count += 1
            failures.last = now
            failures.next = max(failures.next, now + _delay(key, failures.count))
            self._failures.move_to_end(key)
        while len(self._failures) > KEPT:
            self._failures.popitem(last=False)
        return self._failures[keys[0]].count

    def succeeded(self, name: str, address: str) -> None:
        """It was right: what this address failed of this name is forgiven, and the name is known there."""
        self._failures.pop((_Scope.BOTH, name[:LONGEST_NAME], address), None)
        self._known[name, address] = None
        self._known.move_to_end((name, address))
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def is_known(self, name: str, address: str) -> bool:
        """Whether this name has logged in from this address."""
        return (name, address) in self._known

    def _found(self, name: str, address: str) -> list[tuple[_Key, _Failures]]:
        keys = _keys(name, address)[: 1 if self.is_known(name, address) else None]
        return [(key, self._failures[key]) for key in keys if key in self._failures]


def _keys(name: str, address: str) -> tuple[_Key, ...]:
    name = name[:LONGEST_NAME]
    return (_Scope.BOTH, name, address), (_Scope.NAME, name, ""), (_Scope.ADDRESS, "", address)


def _delay(key: _Key, count: int) -> float:
    if key[0] is _Scope.BOTH:
        return min(FIRST_DELAY * 2.0 ** min(count - 1, 30), LONGEST_DELAY)
    if count <= TOLERATED or key[0] is _Scope.NO_GUESS:
        return 0.0
    return NAME_DELAY if key[0] is _Scope.NAME else ADDRESS_DELAY
