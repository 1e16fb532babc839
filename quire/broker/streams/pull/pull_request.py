"""One request of a member for messages: it waits until there are some, or its time is up."""

from collections.abc import Callable
from typing import Protocol

from quire.broker.streams.groups.group_member import MemberSubscription
from quire.broker.streams.pull.pulled_member import PulledMember
from quire.errors import QuireError
from quire.message import Message
from quire.scheduler import Timer

LOOKS = 2
"""How many commits a request that does not wait sees through: a member that has just come may need one that settles
what others gave back, and then one that stores the dispatch mark."""

MAX_BYTES = 1 << 20
"""With so many bytes of messages a request is answered, however many more it asked for."""


class Puller(Protocol):
    """What a request needs of the member that makes it.

    Attributes:
        member: what the group knows of it.
    """

    member: PulledMember

    def ask(self, poll: "PullRequest") -> None:
        """A request waits from now on."""

    def answered(self, poll: "PullRequest") -> None:
        """A request is answered, or its caller is gone."""

    def written_this_turn(self) -> None:
        """Its session is flushed at the end of this turn."""


class PullRequest:
    """One request. Its caller calls ``begin``, and ``abandon`` if the client is not there any more to take the answer.

    Args:
        wait: how long it waits for the first one, in seconds; 0 for not at all.

    Attributes:
        taken: the messages it got, with the member's part each is of.
        error: why it failed; None if it did not.
    """

    def __init__(self, puller: Puller, maximum: int, wait: float) -> None:
        self.puller = puller
        self.maximum = maximum
        self.taken: list[tuple[MemberSubscription, Message]] = []
        self.error: QuireError | None = None
        self._core = puller.member.group.core
        self._wait = wait
        self._looks = 0
        self._is_due = False
        self._done: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def begin(self, done: Callable[[], None]) -> None:
        """Wait for messages."""
        self._done = done
        self.puller.ask(self)
        if self._wait > 0:
            self._timer = self._core.scheduler.call_later(self._wait, self.end)
        else:
            self._core.after_commit(self._look_soon)

    def take(self, child: MemberSubscription, messages: list[Message]) -> bool:
        """Take messages for the answer; whether it may take more."""
        self.taken += [(child, message) for message in messages]
        return sum([message.size for _, message in self.taken]) < MAX_BYTES

    def _look_soon(self) -> None:
        """A commit is done: whether there is anything now is seen at the end of the turn."""
        self._is_due = True
        self.puller.written_this_turn()

    def turn_ends(self) -> None:
        """The turn ends: answer with what it has brought, or look what the last commit has."""
        if not self.taken and self._is_due:
            self._is_due = False
            self._looks += 1
            self.puller.member.look()
            if not self.taken and self._looks < LOOKS:
                self._core.after_commit(self._look_soon)
        if self.taken or self._looks == LOOKS:
            self.end()

    def end(self, error: QuireError | None = None) -> None:
        """Answer now. Nothing happens if it is answered already.

        Args:
            error: why it fails; None if it does not.
        """
        done = self._stop()
        if done is not None:
            self.error = error
            if error is not None:
                self._give_back()
            done()

    def abandon(self) -> None:
        """The client is gone: what the request got goes to others, or to this member's next request."""
        self._stop()
        self._give_back()

    def _give_back(self) -> None:
        taken, self.taken = self.taken, []
        for child in dict.fromkeys([child for child, _ in taken]):
            if messages := child.take([message.sequence for of, message in taken if of is child]):
                child.source.redeliver(messages, 0, "the member was gone before it got the message")

    def _stop(self) -> Callable[[], None] | None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        if done is not None:
            self.puller.answered(self)
        return done
