"""How long a failed message of a consumer group waits, try by try."""

from quire.errors import InvalidArgument
from quire.units import parse_duration

_SECONDS: tuple[int, ...] = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)

LEVELS_MS: tuple[int, ...] = tuple([seconds * 1000 for seconds in _SECONDS])
"""The delay levels 1 to 18, in milliseconds; RocketMQ's ``messageDelayLevel``."""

LONGEST_MS = 100 * 365 * 86_400_000
"""No delay is longer: times further away do not fit the records of every store."""


class RetryLadder:
    """The delays of a group.

    Args:
        delays: of the first retry, the second and so on, in milliseconds; at least one.
    """

    def __init__(self, delays: tuple[int, ...] = LEVELS_MS[2:]) -> None:
        self._delays = delays

    @classmethod
    def parse(cls, text: str) -> "RetryLadder | None":
        """The ladder that a policy's ``retry_delays`` says.

        Returns:
            The ladder; None if the text is empty: then the delays are those of a queue.
        """
        delays = [min(round(parse_duration(part) * 1000), LONGEST_MS) for part in text.split()]
        return cls(tuple(delays)) if delays else None

    def delay_ms(self, attempt: int) -> int:
        """How long a message waits before a retry, in milliseconds. By default the nth one has the level n + 2.

        Args:
            attempt: which retry, from 1. Those beyond the last delay have the last one.
        """
        return self._delays[min(attempt, len(self._delays)) - 1]


def level_ms(level: int) -> int:
    """The delay of a level that a consumer asks for by its number, in milliseconds."""
    if not 1 <= level <= len(LEVELS_MS):
        raise InvalidArgument(f"there is no delay level {level}: say 1 to {len(LEVELS_MS)}", argument="delay-level")
    return LEVELS_MS[level - 1]
