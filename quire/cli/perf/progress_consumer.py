"""A consumer in a process of its own, which holds one message and can be killed with it."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

from quire.cli.perf.link import ANSWER_LIMIT
from quire.cli.perf.load import Target
from quire.cli.perf.stream_member import StreamMember, StreamMessage
from quire.client.remote_error import remote_error
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, QuireError

PATIENCE = 30.0
"""How long a consumer waits for what is expected, in seconds."""
SETTLING = 1.0
"""How long it waits for more when all has come that is expected, in seconds."""

_LOOK_INTERVAL = 0.05


class Again(NamedTuple):
    """A message that came to a consumer after a fault.

    Attributes:
        number: the message's number.
        is_redelivered: whether it was flagged so.
    """

    number: int
    is_redelivered: bool


class Stuck(NamedTuple):
    """What a consumer takes, and what of it it holds.

    Attributes:
        number: the number of the message that it does not acknowledge.
        messages: how many messages it takes in all.
        prefetch: how many it may have at once.
    """

    number: int
    messages: int
    prefetch: int


class ProgressConsumer:
    """The process; asked in this order to hold, to come back and to let go. As a context manager it is ended.

    Args:
        stream: the stream's name.
        group: the group's name.
        headers: more of its SUBSCRIBE frames, each with its newline.
        stuck: what it takes and holds.
    """

    def __init__(self, stream: str, group: str, headers: str, stuck: Stuck) -> None:
        self._stream, self._group, self._headers, self._stuck = stream, group, headers, stuck
        context = multiprocessing.get_context("fork")
        self._pipe, pipe = context.Pipe()
        self._process = context.Process(target=self._serve, args=(pipe,), daemon=True)
        self._process.start()
        pipe.close()

    def hold(self, target: Target) -> None:
        """Take all messages, acknowledge all but one, and wait until the broker has confirmed that.

        Args:
            target: the broker.

        Raises:
            QuireError: what stopped it; the other methods raise it too.
        """
        self._ask(target)

    def come_back(self, target: Target, held: str, marker: int, wanted: int) -> list[Again]:
        """Connect again, with the message still in hand, and take what comes; see ``take_again``.

        Args:
            target: the broker.
            held: the header ``held``, with its newline; empty to say nothing.
            marker: the number of the message that is sent last.
            wanted: how many others are expected.
        """
        return [Again(*each) for each in self._ask((target, held, marker, wanted))]

    def let_go(self) -> None:
        """Acknowledge what it holds, or what has come again, until the broker has confirmed that; and disconnect."""
        self._ask(None)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._pipe.close()

    def _ask(self, question: object) -> list[tuple[int, bool]]:
        self._pipe.send(question)
        if not self._pipe.poll(ANSWER_LIMIT):
            raise BrokerUnreachable(f"the consumer did not get what it waits for within {ANSWER_LIMIT:g} s")
        try:
            code, answer = self._pipe.recv()
        except EOFError as error:
            raise QuireError("the consumer's process ended") from error
        if code:
            raise remote_error(code, answer, {})
        return list(answer)

    def _serve(self, pipe: "Connection[Any, Any]") -> None:
        """In the process: what the others ask for. Ctrl-C is for the parent."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            member = StreamMember(pipe.recv(), self._stream, self._group, self._headers, self._stuck.prefetch)
            held = _hold(member, self._stuck)
            pipe.send(("", []))
            target, header, marker, wanted = pipe.recv()
            member.close()
            member = StreamMember(target, self._stream, self._group, self._headers + header, self._stuck.prefetch)
            again = take_again(member, marker, wanted)
            pipe.send(("", [(message.number, message.is_redelivered) for message in again]))
            pipe.recv()
            member.settle(again or [held])
            member.disconnect()
            pipe.send(("", []))
        except QuireError as error:
            pipe.send((error.code, str(error)))


def take_again(member: StreamMember, marker: int, wanted: int) -> list[StreamMessage]:
    """Take what comes until a marker and so many others have come, and then what else comes soon.

    Args:
        member: who takes it; it acknowledges the marker.
        marker: the number of the marker.
        wanted: how many others are expected; fewer are returned if no more come.

    Returns:
        The others.

    Raises:
        BrokerUnreachable: the marker did not come.
    """
    clock = SystemClock()
    again: list[StreamMessage] = []
    markers: list[StreamMessage] = []
    last = clock.monotonic()
    while clock.monotonic() - last < (SETTLING if markers and len(again) >= wanted else PATIENCE):
        for message in member.receive(_LOOK_INTERVAL):
            last = clock.monotonic()
            (markers if message.number == marker else again).append(message)
    if not markers:
        raise BrokerUnreachable(f"the stream's last message did not come within {PATIENCE:g} s")
    member.settle(markers)
    return again


def _hold(member: StreamMember, stuck: Stuck) -> StreamMessage:
    """Take messages and acknowledge all but one.

    Returns:
        That one.
    """
    held, taken = [], 0
    while taken < stuck.messages:
        messages = member.take(1)
        taken += len(messages)
        held += [message for message in messages if message.number == stuck.number]
        member.acknowledge([message for message in messages if message.number != stuck.number])
    member.settle([])
    return held[0]
