"""When a scheduled message is sent: the meaning of ActiveMQ's AMQ_SCHEDULED_* headers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from quire.cron import HEADER, Cron
from quire.errors import InvalidHeader

CRON = HEADER
"""The header that has a cron entry."""

DELAY = "AMQ_SCHEDULED_DELAY"
"""The header that says how long to wait before the first send, in milliseconds."""

PERIOD = "AMQ_SCHEDULED_PERIOD"
"""The header that says how long to wait before each repeat, in milliseconds."""

REPEAT = "AMQ_SCHEDULED_REPEAT"
"""The header that says how many sends follow the first one; -1 for no end."""

MAX_WAIT = 100 * 365 * 86_400_000
"""The longest delay and the longest period, in milliseconds: about a hundred years."""

MAX_REPEAT = (1 << 31) - 1
"""The most repeats: what ActiveMQ's type for them holds."""

MANY = 10_000
"""With more repeats than this a message is taken for one that is sent without end."""

LEAST_PERIOD = 1000
"""The shortest period of what is sent without end, in milliseconds: else one message would fill the store."""

_cron = lru_cache(maxsize=1000)(Cron)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a message is sent.

    It is sent in *runs*: the first send, then its repeats, each a period after the one before. Without a cron entry
    there is one run, which begins now. With one, each time of the entry begins a run; times that come while a run lasts
    are passed over. The first send of a run waits for the delay, or, as in ActiveMQ, for the period if there is none.

    Attributes:
        delay: milliseconds.
        period: milliseconds.
        repeat: how many sends follow the first one of a run; -1 for no end.
        cron: a cron entry, in UTC; empty for none.

    Raises:
        InvalidHeader: a value is out of its range, there are repeats without a period, or the entry is none.
    """

    delay: int = 0
    period: int = 0
    repeat: int = 0
    cron: str = ""

    def __post_init__(self) -> None:
        _check(DELAY, self.delay, 0, MAX_WAIT)
        _check(PERIOD, self.period, 0, MAX_WAIT)
        _check(REPEAT, self.repeat, -1, MAX_REPEAT)
        if self.repeat and not self.period:
            raise InvalidHeader(f"{REPEAT} needs {PERIOD}, the milliseconds between the repeats", header=REPEAT)
        if self.cron:
            _cron(self.cron)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """What a message's headers say; None if it is to be sent at once.

        As in ActiveMQ, repeats alone schedule nothing.
        """
        if not any([headers.get(name, "").strip() for name in (DELAY, PERIOD, CRON)]):
            return None
        delay, period, repeat = [_number(headers, name) for name in (DELAY, PERIOD, REPEAT)]
        timing = cls(delay, period, repeat, headers.get(CRON, "").strip())
        if timing._is_too_dense:
            text = f"{PERIOD} is {period}: {LEAST_PERIOD} is the least for what is sent without end"
            raise InvalidHeader(text, header=PERIOD)
        return timing

    @property
    def recurs(self) -> bool:
        """Whether the message is sent more than once."""
        return bool(self.repeat or self.cron)

    @property
    def is_endless(self) -> bool:
        """Whether it is sent without end, or about so."""
        return bool(self.cron) or self.repeat < 0 or self.repeat > MANY

    @property
    def _is_too_dense(self) -> bool:
        """Whether sends without end come more often than they may; a cron entry begins one run a minute at the most."""
        runs_on = self.repeat < 0 or self.repeat > MANY or (bool(self.cron) and self.repeat >= 60)
        return runs_on and self.period < LEAST_PERIOD

    def first(self, now_ms: int) -> int:
        """When the first send is due.

        Args:
            now_ms: when the message was taken, in milliseconds since the epoch, as all times here.
        """
        start = _cron(self.cron).next_after(now_ms) if self.cron else now_ms
        return start + self._wait

    def following(self, due: int, left: int, now_ms: int) -> tuple[int, int] | None:
        """When the send after one is due. Times that have gone by are passed over, so that none is made up for.

        Args:
            due: when that one was due.
            now_ms: when it was sent.

        Returns:
            The time, later than now, and how many repeats of the run are left then; None if it was the last send.
        """
        if left:
            period = LEAST_PERIOD if self._is_too_dense else self.period  # an older broker has taken it
            passed = max(0, now_ms - due) // period
            return due + (passed + 1) * period, left - 1 if left > 0 else left
        if self.cron:
            start = _cron(self.cron).next_after(max(due, now_ms) - self._wait)
            return start + self._wait, self.repeat
        return None

    @property
    def _wait(self) -> int:
        return self.delay or self.period


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "").strip() or "0"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise InvalidHeader(f"{name} is {text[:60]!r}: a whole number", header=name)
    return int(text)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidHeader(f"{name} is {value}: a whole number from {least} to {most}", header=name)
