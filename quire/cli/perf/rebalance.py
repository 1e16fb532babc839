"""The scenario of the rebalance: members of a group come, go and die under load, and others are only restarted."""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.own_broker import OwnBroker
from quire.cli.perf.rebalance_team import Team
from quire.cli.perf.stream_crew import StreamCrew
from quire.cli.perf.stream_lag import lag
from quire.cli.perf.stream_load import StreamLoad
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

_IDLE = 0.002
_SILENCE = 10.0


class _Step(NamedTuple):
    """What happens to a team.

    Attributes:
        at: when, in seconds from the first SEND on.
        do: what.
    """

    at: float
    do: Callable[[], None]


@dataclass
class Rebalance:
    """One run.

    Args:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        seconds: how long it takes until there are as few members as at first.
        seed: decides who leaves, and how.
        live: shows how far it is.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": str(PARTITIONS)}

    broker: OwnBroker
    seconds: float
    seed: int
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Let members come, go and die; and then, with another stream, restart members that have names.

        Raises:
            QuireError: the broker failed.
        """
        self._clock = SystemClock()
        self._dice = random.Random(self.seed)  # noqa: S311 - it only has to be repeatable
        return [*self._come_and_go(), *self._roll()]

    def _come_and_go(self) -> list[Finding]:
        """Few members, many, few again; half of those that leave die."""
        team, load = self._team("perf.rebalance", self.seconds)
        for number in range(FEWEST):
            team.come(f"first {number}")
        extra, third = MOST - FEWEST, self.seconds / 3
        steps = [
            *[_Step(third * (0.5 + n / extra), partial(team.come, f"next {n}")) for n in range(extra)],
            *[_Step(third * (2 + 0.5 * n / extra), partial(self._go, team, dies=n % 2 == 0)) for n in range(extra)],
        ]
        left = self._serve(team, load, steps)
        duplicates = team.log.duplicates + team.log.unflagged_duplicates
        return [
            Finding("messages", load.messages),
            Finding("connections", team.connections),
            Finding("moves", team.owners.moves),
            *_broken(team, left),
            Finding("open_leases_of_the_dead", team.open_leases),
            at_most("duplicates", duplicates, team.open_leases),
            at_most("unflagged_duplicates", team.log.unflagged_duplicates, 0),
        ]

    def _roll(self) -> list[Finding]:
        """Members with names go and come back, one after the other: everything stays where it is."""
        seconds = BETWEEN + STATIC * (AWAY + BETWEEN)
        team, load = self._team("perf.rolling", seconds)
        names = [f"static{number}" for number in range(STATIC)]
        for name in names:
            team.come(name, f"member:{name}\n")
        steps = []
        for number, name in enumerate(names):
            at = BETWEEN + number * (AWAY + BETWEEN)
            steps.append(_Step(at, partial(team.leave, name, politely=number % 2 == 0)))
            steps.append(_Step(at + AWAY, partial(team.come, name, f"member:{name}\n")))
        self._settle(team)
        revocations = team.revocations
        left = self._serve(team, load, steps)
        return [
            Finding("rolling_messages", load.messages),
            Finding("rolling_restarts", STATIC),
            *[finding._replace(figure=f"rolling_{finding.figure}") for finding in _broken(team, left)],
            at_most("rolling_moves", team.owners.moves, 0),
            at_most("rolling_revocations", team.revocations - revocations, 0),
            at_most("rolling_duplicates", team.log.duplicates + team.log.unflagged_duplicates, 0),
        ]

    def _team(self, stream: str, seconds: float) -> tuple[Team, StreamLoad]:
        """Nobody yet, and what is sent to them."""
        load = StreamLoad(
            round(RATE * seconds), rate=RATE, numbered=True, consumers=0, partitions=PARTITIONS, queue=stream
        )
        return Team(self.broker.target, stream, load.group, load.messages, PARTITIONS, self._dice), load

    def _go(self, team: Team, *, dies: bool) -> None:
        """Somebody goes."""
        name = self._dice.choice(team.names)
        if dies:
            team.die(name)
        else:
            team.leave(name, politely=True)

    def _settle(self, team: Team) -> None:
        """Wait until partitions are dealt out."""
        end = self._clock.monotonic() + BETWEEN
        while self._clock.monotonic() < end:
            team.serve()
            time.sleep(_IDLE)

    def _serve(self, team: Team, load: StreamLoad, steps: Sequence[_Step]) -> int:
        """Send, and let the team work and change, until all steps are done and nothing is left.

        Returns:
            What is left all the same when nothing comes any more.
        """
        waiting = deque(steps)
        with StreamCrew(self.broker.target, load, lambda counts: None) as crew:
            crew.start_producers()
            began = last = self._clock.monotonic()
            while waiting or crew.is_working or team.log.missing or lag(self.broker.api, load.queue, load.group):
                if team.serve() or waiting or crew.is_working:
                    last = self._clock.monotonic()
                else:
                    time.sleep(_IDLE)
                if last + _SILENCE < self._clock.monotonic():
                    break
                while waiting and waiting[0].at <= self._clock.monotonic() - began:
                    waiting.popleft().do()
                crew.look()
                self._show(team, load)
            crew.finish()
        for name in team.names:
            team.leave(name, politely=True)
        return lag(self.broker.api, load.queue, load.group)

    def _show(self, team: Team, load: StreamLoad) -> None:
        received = team.log.received
        text = f"{load.queue}: {len(team.names)} members, received {received}, duplicates {team.log.duplicates}"
        self.live.show(text, received / load.messages)


def _broken(team: Team, left: int) -> list[Finding]:
    """What holds whatever happens to members."""
    return [
        at_most("missing", team.log.missing, 0),
        at_most("left_in_the_stream", left, 0),
        at_most("out_of_order", team.log.out_of_order, 0),
        at_most("at_two_members", team.log.at_two_consumers, 0),
        at_most("two_owners_in_an_epoch", team.owners.two_owners, 0),
        at_most("back_to_an_old_epoch", team.owners.old_epochs, 0),
    ]
