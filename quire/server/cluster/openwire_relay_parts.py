"""All shards that the relay of one OpenWire client has to do with, and what several of them answer together."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from quire.cluster.link_frames import Opening
from quire.errors import LimitExceeded, QuireError, ShardMoved, TransactionRolledBack
from quire.protocols.openwire.commands import (
    ConnectionErrorCommand,
    ConnectionInfo,
    ExceptionResponse,
    Response,
)
from quire.protocols.openwire.structures import BaseCommand, ConnectionId
from quire.protocols.openwire.wire_fields import Structure
from quire.protocols.openwire.wire_format import WireFormat
from quire.server.cluster.links import Links
from quire.server.cluster.openwire_relay_part import Answered, OwnPart, Part, Receiver, RemotePart
from quire.server.cluster.spanning_commit import Seat
from quire.server.cluster.stomp_relay import ENTRY_ENDED
from quire.server.openwire.openwire_destinations import JAKARTA, throwable

MOST_ASKED = 1000
"""So many commands of a client may wait for the answer of one shard."""

Answers = Mapping[Part, Response]
"""What shards have answered."""


class RelayedClient(Protocol):
    """The client's session, as its relay sees it."""

    format: WireFormat
    package: str
    is_closed: bool
    is_blameless: bool
    is_fault_tolerant: bool
    connection_id: str

    def take_own(self, command: BaseCommand) -> bool:
        """Do what a command says in this process; False if it has to wait."""

    def write_whole(self, frames: bytes) -> None:
        """Have whole frames written to the client."""

    def send_command(self, command: Structure) -> None:
        """Have a command written to the client."""

    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close."""

    def end(self, code: str = "") -> None:
        """Close; the client was told why, by an error with this code."""

    def opening(self) -> Opening:
        """What other shards are told of the client."""

    def go_on(self) -> None:
        """Take input that waits for the relay."""

    def unwritten(self) -> None:
        """Have the relay flushed at the end of the turn."""

    def hold_input(self) -> None:
        """Read nothing more from the client."""

    def release_input(self) -> None:
        """Read from the client again."""


class _Gathering:
    """The answers to one command, which several shards were asked for."""

    __slots__ = ("answers", "left", "then")

    def __init__(self, left: int, then: Callable[[Answers], None]) -> None:
        self.answers: dict[Part, Response] = {}
        self.left = left
        self.then = then

    def answered(self, part: Part, response: Response) -> None:
        """One of them has answered."""
        self.answers[part] = response
        self.left -= 1
        if not self.left:
            self.then(self.answers)


class OpenWireRelayParts:
    """The shards of one client: virtual connections to them, opened when they are needed.

    Args:
        info: how the client has introduced itself.

    Attributes:
        own: the shard of this process; if it has none, what there is of the client without a shard.
        opened: the others that there are virtual connections to.
        is_awaited: whether the client's input waits for answers.
    """

    def __init__(
        self, client: RelayedClient, links: Links, receiver: Receiver, info: ConnectionInfo, max_frame_size: int
    ) -> None:
        self._client = client
        self._links = links
        self._receiver = receiver
        self._info = info
        self._max_frame_size = max_frame_size
        self._last_number = 0
        self.is_awaited = False
        self.cluster = links.cluster_map
        self.own = OwnPart(receiver, self.cluster.own, client.format, max_frame_size, client.take_own)
        self.opened: dict[int, RemotePart] = {}

    # Which there are.

    def part(self, shard: int) -> Part:
        """A shard, which the client uses from now on.

        Raises:
            LimitExceeded: the link to it carries as many connections as it may.
        """
        if shard == self.own.shard:
            return self.own
        remote = self.remote(shard)
        remote.is_used = True
        return remote

    def remote(self, shard: int, introduced: Answered | None = None) -> RemotePart:
        """Another shard; the virtual connection to it waits until it can be reached. Raises what ``part`` does.

        Args:
            introduced: takes the answer to the client's introduction, if it was not introduced before.
        """
        known = self.opened.get(shard)
        if known is not None:
            return known
        client = self._client
        info = replace(self._info, fault_tolerant=client.is_fault_tolerant)
        version = "6" if client.package == JAKARTA else "5"
        part = RemotePart(self._receiver, shard, client.format, self._max_frame_size, info, version)
        part.connection = self._links.open(shard, client.opening(), part)
        self.opened[shard] = part
        part.introduce(self._next_number(), introduced or self._introduced)
        return part

    def parts(self, shards: Iterable[int]) -> list[Part]:
        """These shards, which the client uses from now on."""
        return [self.part(shard) for shard in shards]

    def every(self) -> list[Part]:
        """All shards of the cluster."""
        return self.parts(range(self.cluster.shards))

    def known(self) -> list[Part]:
        """This process, and the shards that the client has to do with."""
        return [self.own, *self.opened.values()]

    @property
    def is_asked(self) -> bool:
        """Whether any of them has still to answer."""
        return any([part.asked for part in self.known()])

    def _introduced(self, answer: Response) -> None:
        """A shard has answered to the client's introduction."""
        if isinstance(answer, ExceptionResponse) and not self._client.is_closed:
            self._client.send_command(ConnectionErrorCommand(exception=answer.exception))
            self._client.fail(ShardMoved("a shard of the cluster does not take the client"))

    # What they are told.

    def ask(self, commands: Mapping[Part, BaseCommand], then: Callable[[Answers], None]) -> bool:
        """Have each shard do a command, and make a call with all answers; False if it has to wait: nothing was done.

        Raises:
            LimitExceeded: too many commands wait for an answer.
        """
        for part in commands:
            if len(part.asked) >= MOST_ASKED:
                raise LimitExceeded(f"{MOST_ASKED} commands wait for shard {part.shard}", limit=MOST_ASKED)
        gathering = _Gathering(len(commands), then)
        for part, command in sorted(commands.items(), key=lambda item: item[0] is not self.own):
            number = self._next_number()
            part.asked[number] = partial(gathering.answered, part)
            if not part.tell(replace(command, command_id=number, response_required=True)):
                del part.asked[number]
                return False
        return True

    def ask_first(self, commands: Mapping[Part, BaseCommand], then: Callable[[Answers], None]) -> bool:
        """Ask as ``ask``, and take nothing more from the client until all have answered.

        What the client sends next may have an answer sent to its temporary destination by way of another shard: that
        must not come before the destination is there.
        """

        def answered(answers: Answers) -> None:
            self.is_awaited = False
            then(answers)
            self.go_on()

        self.is_awaited = True
        try:
            asked = self.ask(commands, answered)
        except QuireError:
            self.is_awaited = False
            raise
        if not asked:
            self.is_awaited = False
        return asked

    def ask_and_answer(self, commands: Mapping[Part, BaseCommand], command: BaseCommand) -> bool:
        """Have shards do a command that the client has sent, and answer it. As ``ask``."""
        return self.ask(commands, lambda answers: self.answer(command, first_error(answers)))

    def answer(self, command: BaseCommand, answer: Response) -> None:
        """Answer a command of the client; if it does not wait for that, it hears of an error all the same."""
        if command.response_required:
            answer.correlation_id, answer.command_id = command.command_id, 0
            self._client.send_command(answer)
        elif isinstance(answer, ExceptionResponse):
            id = ConnectionId(self._client.connection_id)
            self._client.send_command(ConnectionErrorCommand(exception=answer.exception, connection_id=id))

    def fail(self, command: BaseCommand, answer: ExceptionResponse) -> None:
        """Answer a command of the client with an error, and end its connection."""
        if not self._client.is_closed:
            self.answer(command, answer)
            self._client.fail(TransactionRolledBack(text_of(answer)))

    def go_on(self) -> None:
        """Have the client's input go on that waits for the relay."""
        self._client.go_on()

    def seat(self, part: Part) -> Seat:
        """Where a part of a transaction is."""
        own = part is self.own
        return Seat(part.shard, self.cluster.epoch if own else self._links.epoch(part.shard))

    def tell_client(self, command: Structure) -> None:
        """Have a command written to the client."""
        self._client.send_command(command)

    def _next_number(self) -> int:
        """The id of a command of the relay; those of clients are positive."""
        self._last_number = -1 if self._last_number <= -(1 << 31) else self._last_number - 1
        return self._last_number

    def flush(self) -> None:
        """Write what has gathered; if a shard takes no more now, the client is read no more."""
        for part in self.opened.values():
            part.flush()
            if part.connection.is_full:
                self._client.hold_input()

    def drained(self) -> None:
        """A shard takes more again."""
        if not any([part.connection.is_full for part in self.opened.values()]):
            self._client.release_input()

    def say_taken(self) -> None:
        """The client has taken what was written to it."""
        for part in self.opened.values():
            part.say_taken()

    # Their ends.

    def remove(self, part: RemotePart, error: QuireError) -> None:
        """A shard is lost: those who wait for its answers get the error."""
        self.opened.pop(part.shard, None)
        thrown = throwable(error, self._client.package)
        asked, part.asked = part.asked, {}
        for answered in asked.values():
            answered(ExceptionResponse(exception=thrown))
        self.drained()

    def close(self) -> None:
        """The client is gone."""
        opened, self.opened = self.opened, {}
        for part in opened.values():
            part.asked.clear()
            part.close(ENTRY_ENDED if self._client.is_blameless else None)


def first_error(answers: Answers) -> Response:
    """An error, if there is one among some answers."""
    return next((a for a in answers.values() if isinstance(a, ExceptionResponse)), next(iter(answers.values())))


def success_anywhere(answers: Answers, absent: str) -> Response:
    """An answer of those shards that know what was asked for: others answer with the code ``absent``."""
    failed = {part: a for part, a in answers.items() if isinstance(a, ExceptionResponse)}
    others = {part: a for part, a in failed.items() if code_of(a) != absent}
    if others:
        return first_error(others)
    return next((a for part, a in answers.items() if part not in failed), next(iter(answers.values())))


def code_of(answer: ExceptionResponse | ConnectionErrorCommand) -> str:
    """The code of the error that a shard has answered or told."""
    return text_of(answer).partition(":")[0]


def text_of(answer: ExceptionResponse | ConnectionErrorCommand) -> str:
    """The text of the error that a shard has answered or told: its code comes first."""
    return "" if answer.exception is None else answer.exception.message or ""
