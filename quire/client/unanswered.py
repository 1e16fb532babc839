"""The commands whose answers are awaited, each with its limit of time."""

import asyncio
import logging
from collections.abc import Iterator

from quire import logs
from quire.clock import Clock
from quire.errors import BrokerUnreachable, QuireError
from quire.protocols.openwire.commands import Response
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.structures import BaseCommand

LOOK = 0.25
"""How often limits are looked at, in seconds: one timer for all of them."""


class _Request:
    __slots__ = ("answer", "command", "deadline", "sent_at", "tracked")

    def __init__(
        self, command: BaseCommand, answer: "asyncio.Future[Response]", sent_at: float, limit: float, tracked: bool
    ) -> None:
        self.command = command
        self.answer = answer
        self.sent_at = sent_at
        self.deadline = sent_at + limit if limit else None
        self.tracked = tracked


class Unanswered:
    """The requests of a connection that wait for their answers.

    Args:
        clock: measures the limits.
        warn_after: after which time an unanswered send is reported in the log, in seconds; 0: never.
    """

    def __init__(self, clock: Clock, warn_after: float) -> None:
        self._clock = clock
        self._warn_after = warn_after
        self._requests: dict[int, _Request] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False

    def __len__(self) -> int:
        return len(self._requests)

    def oldest_age(self) -> float:
        """For how long the oldest request has been waiting, in seconds; 0 if none is."""
        for request in self._requests.values():
            return self._clock.monotonic() - request.sent_at
        return 0.0

    def add(self, command: BaseCommand, limit: float, tracked: bool) -> "asyncio.Future[Response]":
        """Wait for the answer to a command.

        Args:
            command: with its number.
            limit: how long the answer may take, in seconds; 0: without a limit.
            tracked: whether the replay of the state sends it again.
        """
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._requests[command.command_id] = _Request(command, answer, self._clock.monotonic(), limit, tracked)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK, self._look)
        return answer

    def take(self, number: int) -> "tuple[BaseCommand, asyncio.Future[Response]] | None":
        """The command of a number and the future of its answer, which is expected no more; None if nothing waits."""
        request = self._requests.pop(number, None)
        return None if request is None else (request.command, request.answer)

    def to_resend(self) -> Iterator[BaseCommand]:
        """The commands to send again on a new socket, in order, without those that the replay of the state has."""
        return (request.command for request in self._requests.values() if not request.tracked)

    def fail_all(self, error: QuireError) -> None:
        """No answer will come."""
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _fail(request, error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._clock.monotonic()
        overdue = [number for number, request in self._requests.items() if request.deadline and request.deadline <= now]
        for number in overdue:
            request = self._requests.pop(number)
            waited = now - request.sent_at
            _fail(request, BrokerUnreachable(
                f"the broker did not answer {type(request.command).__name__} within {waited:.1f} s; it may be done",
                waited=waited,
            ))  # fmt: skip
        self._report_blocked()
        self._timer = self._loop.call_later(LOOK, self._look) if self._requests else None

    def _report_blocked(self) -> None:
        oldest = next(iter(self._requests.values()), None)
        is_blocked = (
            oldest is not None and isinstance(oldest.command, Message) and 0 < self._warn_after <= self.oldest_age()
        )
        if is_blocked and not self._warned:
            assert oldest is not None
            assert isinstance(oldest.command, Message)
            logs.event(
                "client.send-blocked",
                f"sends to {oldest.command.destination} are unanswered for {self.oldest_age():.1f} s: the broker holds "
                "them, or is slow",
                logging.WARNING, destination=str(oldest.command.destination), unanswered=len(self._requests),
            )  # fmt: skip
        self._warned = is_blocked


def _fail(request: _Request, error: QuireError) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)
