"""The scenario of the rebalance: members of a group come, go and die under load, and others are only restarted."""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from benchmarks.load import GROUP, STREAM_BATCH, NumberedLoad
from benchmarks.rig import OwnBroker
from benchmarks.scenarios.logs import GroupLog, OwnerLog, Team, Worker
from benchmarks.scenarios.scenario import IDLE, SILENCE, Finding, Scenario, at_most
from benchmarks.stomp_client import Message, member
from quire.cli.perf.load import Pace
from quire.cli.perf.measure import Crew
from quire.clock import SystemClock

PARTITIONS = 24
FEWEST, MOST = 2, 20
"""How many members there are at first and at last, and how many in between."""
RATE = 3000.0
"""How many messages are sent per second."""
STATIC = 5
"""How many members with names are restarted, one after the other."""
AWAY = 1.0
"""How long each of them is away, in seconds."""
BETWEEN = 2.0
"""How long nothing happens before the next one goes, in seconds."""
LONGEST_WORK = 0.02
"""How long a member works on a message at the most before it acknowledges it, in seconds."""


class _Step(NamedTuple):
    """What happens to a team, and when: in seconds from the first SEND on."""

    at: float
    do: Callable[[], None]


class _Members(Team):
    """The members of a group, which gets the messages of a load: message n is in partition n % ``PARTITIONS``."""

    def __init__(self, broker: OwnBroker, stream: str, seconds: float, dice: random.Random) -> None:
        self.load = NumberedLoad(
            round(RATE * seconds), rate=RATE, kind="stream", batch=STREAM_BATCH, turns=("partition", PARTITIONS),
            queue=stream,
        )  # fmt: skip
        super().__init__(GroupLog(self.load.messages, PARTITIONS), Pace(0, SystemClock()))
        self.owners = OwnerLog(PARTITIONS)  # who has had which partition
        self.open_leases = self.revocations = 0
        self._broker, self._dice = broker, dice

    @property
    def lag(self) -> int:
        return self._broker.lag(self.load.queue, GROUP)

    def join(self, name: str, headers: str = "") -> None:
        consumer = member(self._broker.target, self.load.queue, f"events:true\n{headers}")
        self.come(name, consumer, self._dice.uniform(0, LONGEST_WORK))

    def go(self, name: str, *, politely: bool) -> None:
        self.leave(name, settles=True, politely=politely)

    def lose_one(self, *, dies: bool) -> None:
        """Some member goes, or is gone with all it had."""
        name = self._dice.choice(list(self.workers))
        if dies:
            self.open_leases += self.leave(name, settles=False, politely=False)
        else:
            self.go(name, politely=True)

    def received(self, name: str, worker: Worker, message: Message) -> None:
        if message.event:
            self.revocations += message.event == "revoked"
            return
        super().received(name, worker, message)
        self.owners.delivered(name, message.place[0], message.epoch)


@dataclass
class Rebalance(Scenario):
    """Let the members of a group grow from 2 to 20 and shrink to 2 again, and restart members that have names.

    A partition must have one owner at a time, and keep its order. Those that are only restarted keep theirs.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": str(PARTITIONS)}

    seconds: float
    seed: int

    def run(self) -> list[Finding]:
        self._dice = random.Random(self.seed)
        return [*self._come_and_go(), *self._roll()]

    def _come_and_go(self) -> list[Finding]:
        """Few members, many, few again; half of those that leave die."""
        team = _Members(self.broker, "perf.rebalance", self.seconds, self._dice)
        for number in range(FEWEST):
            team.join(f"first {number}")
        extra, third = MOST - FEWEST, self.seconds / 3
        steps = [
            *[_Step(third * (0.5 + n / extra), partial(team.join, f"next {n}")) for n in range(extra)],
            *[_Step(third * (2 + 0.5 * n / extra), partial(team.lose_one, dies=n % 2 == 0)) for n in range(extra)],
        ]
        left = self._serve(team, steps)
        duplicates = team.log.duplicates + team.log.unflagged_duplicates
        return [
            Finding("messages", team.load.messages),
            Finding("connections", team.connections),
            Finding("moves", team.owners.moves),
            *_broken(team, left),
            Finding("open_leases_of_the_dead", team.open_leases),
            at_most("duplicates", duplicates, team.open_leases),
            at_most("unflagged_duplicates", team.log.unflagged_duplicates, 0),
        ]

    def _roll(self) -> list[Finding]:
        """Members with names go and come back, one after the other: everything stays where it is."""
        team = _Members(self.broker, "perf.rolling", BETWEEN + STATIC * (AWAY + BETWEEN), self._dice)
        steps = []
        for number in range(STATIC):
            name, at = f"static{number}", BETWEEN + number * (AWAY + BETWEEN)
            team.join(name, f"member:{name}\n")
            steps.append(_Step(at, partial(team.go, name, politely=number % 2 == 0)))
            steps.append(_Step(at + AWAY, partial(team.join, name, f"member:{name}\n")))
        # Until partitions are dealt out.
        end = self.clock.monotonic() + BETWEEN
        while self.clock.monotonic() < end:
            team.serve(team.workers)
            time.sleep(IDLE)
        revocations = team.revocations
        left = self._serve(team, steps)
        return [
            Finding("rolling_messages", team.load.messages),
            Finding("rolling_restarts", STATIC),
            *[finding._replace(figure=f"rolling_{finding.figure}") for finding in _broken(team, left)],
            at_most("rolling_moves", team.owners.moves, 0),
            at_most("rolling_revocations", team.revocations - revocations, 0),
            at_most("rolling_duplicates", team.log.duplicates + team.log.unflagged_duplicates, 0),
        ]

    def _serve(self, team: _Members, steps: Sequence[_Step]) -> int:
        """Send, and let the team work and change, until all steps are done and nothing is left."""
        waiting = deque(steps)
        with Crew(self.broker.target, team.load, lambda counts: None) as crew:
            crew.start_producers()
            began = last = self.clock.monotonic()
            while waiting or crew.is_working or team.log.missing or team.lag:
                if team.serve(team.workers) or waiting or crew.is_working:
                    last = self.clock.monotonic()
                else:
                    time.sleep(IDLE)
                if last + SILENCE < self.clock.monotonic():
                    break
                while waiting and waiting[0].at <= self.clock.monotonic() - began:
                    waiting.popleft().do()
                crew.look()
                log = team.log
                text = f"{team.load.queue}: {len(team.workers)} members, received {log.received}"
                self.show(f"{text}, duplicates {log.duplicates}", log.received / log.messages)
            crew.finish()
        for name in list(team.workers):
            team.go(name, politely=True)
        return team.lag


def _broken(team: _Members, left: int) -> list[Finding]:
    return [
        at_most("missing", team.log.missing, 0),
        at_most("left_in_the_stream", left, 0),
        at_most("out_of_order", team.log.out_of_order, 0),
        at_most("at_two_members", team.log.at_two_consumers, 0),
        at_most("two_owners_in_an_epoch", team.owners.two_owners, 0),
        at_most("back_to_an_old_epoch", team.owners.old_epochs, 0),
    ]
