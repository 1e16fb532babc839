"""Programs that consume a group of the stream ``s`` with requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.broker.streams.partition import Start, StartKind
from quire.http.pull_door import Outcomes, PollRequest, PullMembers, PullRequest, handle_of
from quire.message import Message
from quire.sessions.base import ACCEPTED, Settlement, SettlementKind
from quire.sessions.rights import Guard
from tests.conformance.sessions.rig import guard
from tests.unit.broker.streams.member_rig import StreamRig


class Request:
    def __init__(self, poll: PullRequest) -> None:
        self.poll = poll  # itself
        self.answers = 0  # how often it was answered
        poll.begin(self._done)

    def _done(self) -> None:
        self.answers += 1

    @property
    def taken(self) -> list[Message]:
        """What it got; it was answered once, without an error."""
        assert (self.answers, self.poll.error) == (1, None)
        return [message for _, message in self.poll.taken]

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.taken]

    @property
    def handles(self) -> list[str]:
        assert self.answers == 1
        return [handle_of(child, message) for child, message in self.poll.taken]


@dataclass
class Script:
    """A program that consumes the group ``g``, under one name, with requests."""

    rig: StreamRig
    members: PullMembers
    name: str = "a"

    def ask(self, maximum: int = 32, wait: float = 30.0, **wish: Any) -> Request:
        """Make a request; what there is at once has come."""
        request = self.begin(maximum, wait, **wish)
        self.rig.run()
        return request

    def begin(self, maximum: int = 32, wait: float = 30.0, **wish: Any) -> Request:
        wish.setdefault("start", Start(StartKind.EARLIEST))
        return Request(self.members.poll("s", "g", PollRequest(self.name, maximum, wait, **wish), self.guard))

    def ack(self, *handles: str) -> Outcomes:
        return self.settle(handles, ACCEPTED)

    def reject(self, *handles: str, delay_ms: int | None = None, dead_letter: bool = False) -> Outcomes:
        dead = Settlement(SettlementKind.DEAD)
        return self.settle(handles, dead if dead_letter else Settlement(SettlementKind.REJECTED, delay_ms))

    def extend(self, *handles: str, seconds: float) -> Outcomes:
        return self.settle(handles, Settlement(SettlementKind.EXTEND, round(seconds * 1000)))

    def settle(self, handles: Sequence[str], how: Settlement) -> Outcomes:
        outcomes = self.members.settle("s", "g", self.name, handles, how, self.guard)
        self.rig.run()
        return outcomes

    def leave(self) -> bool:
        return self.members.leave("s", "g", self.name, self.guard)

    @property
    def guard(self) -> Guard:
        return guard(self.rig.stepped)

    def other(self, name: str) -> "Script":
        return Script(self.rig, self.members, name)

    def is_member(self) -> bool:
        return self.name in self.rig.group().members


def script(rig: StreamRig | None = None, **policy: Any) -> Script:
    rig = rig or StreamRig(**policy)
    return Script(rig, PullMembers(rig.broker))
