"""The scenario of the message that is stuck: all after it are done, and then the consumer or the broker is killed."""

from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from benchmarks.load import GROUP, NUMBER_DIGITS, NumberedLoad
from benchmarks.scenarios.findings import Finding, at_most, exactly
from benchmarks.scenarios.progress_consumer import Again, ProgressConsumer, take_again
from benchmarks.scenarios.scenario import Scenario
from benchmarks.stomp_client import member, send_all

MESSAGES = 2200
STUCK = 2101
"""The number of the message that is not acknowledged; numbers are offsets, from 1."""
DELIVERED = 100
"""How many a consumer has at once, so how many it has when the others before them are acknowledged."""

_MEMBER = "member:a\n"


class Case(NamedTuple):
    """What happens while the message is stuck.

    Attributes:
        name: what it is called.
        kills_consumer: whether the consumer is killed. Otherwise it comes back with the message in hand.
        kills_broker: whether the broker is killed, and started again.
        headers: of the consumer's SUBSCRIBE frames.
        held: what the consumer says when it comes back.
        again: how many messages must come again.
    """

    name: str
    kills_consumer: bool
    kills_broker: bool
    headers: str
    held: str
    again: int


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
        """Run all cases, each with a stream of its own."""
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
        """Send messages with numbers, and wait until the broker has confirmed them."""
        load = NumberedLoad(count, NUMBER_DIGITS, receipts=False, kind="stream", queue=stream)
        send_all(self.broker.target, load.frames(first, count, 0, 0))

    def _take(self, stream: str, headers: str, marker: int, wanted: int) -> list[Again]:
        """Take what comes to a member that holds nothing, and acknowledge it."""
        with closing(member(self.broker.target, stream, headers)) as consumer:
            messages = take_again(consumer, marker, wanted)
            consumer.settle(messages)
            consumer.disconnect()
        return [Again(message.number, message.is_redelivered) for message in messages]
