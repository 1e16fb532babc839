"""A page of the schedule."""

from dataclasses import dataclass

from quire.broker.scheduling.scheduled_message import ScheduledMessage


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """A part of the schedule.

    Attributes:
        messages: as they were scheduled; one that recurs stands where it was when it was sent last.
        next: what to ask for the next page with; None at the end.
    """

    messages: list[ScheduledMessage]
    next: int | None
