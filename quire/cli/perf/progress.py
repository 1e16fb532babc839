"""The scenario of the message that is stuck: all after it are done, and then somebody is killed."""

from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.link import Link
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import NUMBER_DIGITS
from quire.cli.perf.own_broker import OwnBroker
from quire.cli.perf.progress_consumer import Again, ProgressConsumer, Stuck, take_again
from quire.cli.perf.stream_lag import lag
from quire.cli.perf.stream_member import StreamMember

MESSAGES = 2200
STUCK = 2101
"""The number of the message that nobody acknowledges; numbers are offsets."""
DELIVERED = 100
"""How many a consumer has at once, so how many it has when the others before them are acknowledged."""

_GROUP = "workers"
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
class Progress:
    """One run.

    Args:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        live: shows how far it is.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": "1"}

    broker: OwnBroker
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Run all cases, each with a stream of its own.

        Raises:
            QuireError: the broker failed.
        """
        findings = [Finding("messages", MESSAGES), Finding("stuck", STUCK), Finding("delivered", DELIVERED)]
        for index, case in enumerate(CASES):
            self.live.show(case.name.replace("_", " "), index / len(CASES))
            findings += self._run(case)
        return findings

    def _run(self, case: Case) -> list[Finding]:
        stream = f"perf.{case.name}"
        self._send(stream, 1, MESSAGES)
        with ProgressConsumer(stream, _GROUP, case.headers, Stuck(STUCK, MESSAGES, DELIVERED)) as consumer:
            consumer.hold(self.broker.target)
            behind = lag(self.broker.api, stream, _GROUP)
            if case.kills_consumer:
                consumer.kill()
            if case.kills_broker:
                self.broker.restart()
            # What comes again comes before what is new: when this is there, nothing else is to be expected.
            self._send(stream, MESSAGES + 1, 1)
            if case.kills_consumer:
                again = self._take(stream, "", MESSAGES + 1, case.again)
            else:
                again = consumer.come_back(self.broker.target, case.held, MESSAGES + 1, case.again)
                consumer.let_go()
        left = lag(self.broker.api, stream, _GROUP)
        self.broker.restart()
        self._send(stream, MESSAGES + 2, 1)
        later = self._take(stream, "" if case.kills_consumer else case.headers, MESSAGES + 2, 0)
        return [
            _exactly(f"{case.name}_lag", behind, 1),
            _exactly(f"{case.name}_again", len(again), case.again),
            at_most(f"{case.name}_again_of_the_others", sum(each.number != STUCK for each in again), 0),
            at_most(f"{case.name}_unflagged", sum(not each.is_redelivered for each in again), 0),
            at_most(f"{case.name}_lag_when_acknowledged", left, 0),
            at_most(f"{case.name}_again_when_acknowledged", len(later), 0),
        ]

    def _send(self, stream: str, first: int, count: int) -> None:
        """Send messages with numbers, and wait until the broker has confirmed them."""
        with closing(Link(self.broker.target)) as link:
            head = f"SEND\ndestination:/stream/{stream}\npersistent:true\n\n"
            link.send(
                "".join([f"{head}{number:0{NUMBER_DIGITS}}\0" for number in range(first, first + count)]).encode()
            )
            link.disconnect()

    def _take(self, stream: str, headers: str, marker: int, wanted: int) -> list[Again]:
        """Take what comes as somebody who holds nothing, and acknowledge it."""
        member = StreamMember(self.broker.target, stream, _GROUP, headers)
        with closing(member):
            again = take_again(member, marker, wanted)
            member.settle(again)
            member.disconnect()
        return [Again(message.number, message.is_redelivered) for message in again]


def _exactly(figure: str, value: int, wanted: int) -> Finding:
    """A figure that must be what it is."""
    return Finding(figure, value, f"exactly {wanted}", value == wanted)
