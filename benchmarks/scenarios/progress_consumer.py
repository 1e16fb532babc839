"""A consumer in a process of its own, which holds one message and can be killed with it."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

from benchmarks.stomp_client import Consumer, Message, member
from quire.cli.perf.load import ANSWER_LIMIT, Target
from quire.client.remote import remote_error
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, QuireError

PATIENCE = 30.0
"""How long a consumer waits for what is expected, in seconds."""
SETTLING = 1.0
"""How long it waits for more when all has come that is expected, in seconds."""

_LOOK_INTERVAL = 0.05


class Again(NamedTuple):
    """A message that came to a consumer after a fault: its number, and whether it was flagged as redelivered."""

    number: int
    is_redelivered: bool


class ProgressConsumer:
    """The process; as a context manager it is ended. ``ask`` calls the methods of ``_Member`` there."""

    def __init__(self, stream: str, headers: str) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(pipe, _Member(stream, headers)), daemon=True)
        self._process.start()
        pipe.close()

    def ask(self, what: str, *arguments: object) -> list[Again]:
        """Let it do something, and wait for what comes of it; what stopped it is raised."""
        self._pipe.send((what, arguments))
        if not self._pipe.poll(ANSWER_LIMIT):
            raise BrokerUnreachable(f"the consumer did not get what it waits for within {ANSWER_LIMIT:g} s")
        try:
            code, answer = self._pipe.recv()
        except EOFError as error:
            raise QuireError("the consumer's process ended") from error
        if code:
            raise remote_error(code, answer, {})
        return list(answer)

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


class _Member:
    """In the process: a member of the group."""

    def __init__(self, stream: str, headers: str) -> None:
        self._stream, self._headers = stream, headers
        self._held: list[Message] = []

    def hold(self, target: Target, stuck: int, messages: int, prefetch: int) -> list[Again]:
        """Take all messages, acknowledge all but the one with this number, and wait until that is confirmed."""
        self._prefetch, taken = prefetch, 0
        self._consumer = member(target, self._stream, self._headers, prefetch)
        while taken < messages:
            came = self._consumer.take(1)
            taken += len(came)
            self._held += [message for message in came if message.number == stuck]
            self._consumer.acknowledge([message for message in came if message.number != stuck], confirmed=True)
        self._consumer.confirm()
        return []

    def come_back(self, target: Target, held: str, marker: int, wanted: int) -> list[Again]:
        """Connect again, with the message still in hand and perhaps the word that it is, and take what comes."""
        self._consumer.close()
        self._consumer = member(target, self._stream, self._headers + held, self._prefetch)
        messages = take_again(self._consumer, marker, wanted)
        self._held = messages or self._held
        return [Again(message.number, message.is_redelivered) for message in messages]

    def remove_resident(self) -> list[Again]:
        """Acknowledge what it holds, or what has come again, until the broker has confirmed that; and disconnect."""
        self._consumer.settle(self._held)
        self._consumer.disconnect()
        return []


def take_again(consumer: Consumer, marker: int, wanted: int) -> list[Message]:
    """Take what comes until a marker and so many others have come, and then what else comes soon.

    The marker is the message with this number; it is acknowledged. Fewer others are returned if no more come.
    """
    clock = SystemClock()
    again: list[Message] = []
    markers: list[Message] = []
    last = clock.monotonic()
    while clock.monotonic() - last < (SETTLING if markers and len(again) >= wanted else PATIENCE):
        for message in consumer.receive(_LOOK_INTERVAL):
            last = clock.monotonic()
            (markers if message.number == marker else again).append(message)
    if not markers:
        raise BrokerUnreachable(f"the stream's last message did not come within {PATIENCE:g} s")
    consumer.settle(markers)
    return again


def _serve(pipe: "Connection[Any, Any]", consumer: _Member) -> None:
    """Answer what is asked; Ctrl-C is for the parent, and the parent's end ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            what, arguments = pipe.recv()
            pipe.send(("", getattr(consumer, what)(*arguments)))
        except QuireError as error:
            pipe.send((error.code, str(error)))
