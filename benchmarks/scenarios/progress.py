"""The scenario of the message that is stuck: all after it are done, and then the consumer or the broker is killed."""

import multiprocessing
import signal
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

from benchmarks.load import GROUP, NUMBER_DIGITS, NumberedLoad
from benchmarks.scenarios.scenario import Finding, Scenario, at_most, exactly
from benchmarks.stomp_client import Consumer, Message, member, send_all
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


MESSAGES = 2200
STUCK = 2101
"""The number of the message that is not acknowledged; numbers are offsets, from 1."""
DELIVERED = 100
"""How many a consumer has at once, so how many it has when the others before them are acknowledged."""

_MEMBER = "member:a\n"


class Case(NamedTuple):
    name: str  # what it is called
    kills_consumer: bool  # whether the consumer is killed. Otherwise it comes back with the message in hand.
    kills_broker: bool  # whether the broker is killed, and started again
    headers: str  # of the consumer's SUBSCRIBE frames
    held: str  # what the consumer says when it comes back
    again: int  # how many messages must come again


CASES = (
    Case("consumer_killed", True, False, "", "", 1),
    Case("broker_killed_and_told", False, True, _MEMBER, f"held:{STUCK}.0\n", 0),
    Case("broker_killed", False, True, _MEMBER, "", 1),
    Case("both_killed", True, True, _MEMBER, "", 1),
)


@dataclass
class Progress(Scenario):
    """Kill a group's consumer, the broker, or both, while one message of 100 is stuck.

    The others are acknowledged: none of them may come again, after any kill.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": "1"}

    def run(self) -> list[Finding]:
        findings = [Finding("messages", MESSAGES), Finding("stuck", STUCK), Finding("delivered", DELIVERED)]
        for index, case in enumerate(CASES):
            self.show(case.name.replace("_", " "), index / len(CASES))
            findings += self._run(case)
        return findings

    def _run(self, case: Case) -> list[Finding]:
        stream = f"perf.{case.name}"
        self._send(stream, 1, MESSAGES)
        with ProgressConsumer(stream, case.headers) as consumer:
            consumer.ask("hold", self.broker.target, STUCK, MESSAGES, DELIVERED)
            behind = self.broker.lag(stream, GROUP)
            if case.kills_consumer:
                consumer.kill()
            if case.kills_broker:
                self.broker.restart()
            # What comes again comes before what is new: when this is there, nothing else is to be expected.
            self._send(stream, MESSAGES + 1, 1)
            if case.kills_consumer:
                came = self._take(stream, "", MESSAGES + 1, case.again)
            else:
                came = consumer.ask("come_back", self.broker.target, case.held, MESSAGES + 1, case.again)
                consumer.ask("remove_resident")
        left = self.broker.lag(stream, GROUP)
        self.broker.restart()
        self._send(stream, MESSAGES + 2, 1)
        later = self._take(stream, "" if case.kills_consumer else case.headers, MESSAGES + 2, 0)
        return [
            exactly(f"{case.name}_lag", behind, 1),
            exactly(f"{case.name}_again", len(came), case.again),
            at_most(f"{case.name}_again_of_the_others", sum(each.number != STUCK for each in came), 0),
            at_most(f"{case.name}_unflagged", sum(not each.is_redelivered for each in came), 0),
            at_most(f"{case.name}_lag_when_acknowledged", left, 0),
            at_most(f"{case.name}_again_when_acknowledged", len(later), 0),
        ]

    def _send(self, stream: str, first: int, count: int) -> None:
        load = NumberedLoad(count, NUMBER_DIGITS, receipts=False, kind="stream", queue=stream)
        send_all(self.broker.target, load.frames(first, count, 0, 0))

    def _take(self, stream: str, headers: str, marker: int, wanted: int) -> list[Again]:
        """Take what comes to a member that holds nothing, and acknowledge it."""
        with closing(member(self.broker.target, stream, headers)) as consumer:
            messages = take_again(consumer, marker, wanted)
            consumer.settle(messages)
            consumer.disconnect()
        return [Again(message.number, message.is_redelivered) for message in messages]
