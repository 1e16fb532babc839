"""Who may read in bulk: the broker alone decides, and the bulk server asks and remembers.

The lines between the two are JSON over pipes: arguments would show a password of the store.
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Sequence

import msgspec

from quire.arrow.failure import Failure
from quire.destination import DestinationKind
from quire.security import Access, Action, Principal


class Instructions(msgspec.Struct, frozen=True):
    """What the broker says."""

    store: str  # the URL of its store
    address: str  # where to listen; port 0 for a free one
    secret: str  # what signs the tokens of readers
    idle_limit: float  # how long to wait for a request before ending, in seconds
    log_format: str  # as the setting
    log_level: str  # as the setting
    tls: dict[str, str] = {}  # the settings of the section
    limits: dict[str, int] = {}  # the same


class Announcement(msgspec.Struct, frozen=True):
    """What the bulk server says: where it listens, or why it does not."""

    address: str = ""
    error: Failure | None = None


class Question(msgspec.Struct, frozen=True):
    """What the bulk server asks: which of some destinations, ``stream://events``, a reader may read."""

    number: int  # the reply has it too
    reader: str
    destinations: list[str]


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The broker's answer, one for each destination; None if it does not know the reader, or not any more."""

    number: int
    allowed: list[bool] | None = None


class TlsRead(msgspec.Struct, frozen=True, tag=True):
    """The broker has read the settings of TLS again."""

    tls: dict[str, str]


class RightsChanged(msgspec.Struct, frozen=True, tag=True):
    """The broker's users, rules or tokens have changed."""


News = Reply | TlsRead | RightsChanged  # what the broker says after its instructions


MAX_READERS = 1000  # how many readers are remembered; one that is forgotten asks for a token again


class Readers:
    """The users that have asked for the bulk server, each with a token for it.

    Attributes:
        secret: what signs tokens, so that the bulk server need not ask about those that were never given out.
    """

    def __init__(self) -> None:
        self.secret = secrets.token_hex(24)
        self._accesses: dict[str, Access] = {}
        self._numbers: dict[Principal, str] = {}

    def token_of(self, access: Access) -> str:
        """A token for the bulk server; for a user always the same one while the login is valid."""
        principal = access.principal
        number = self._numbers.get(principal)
        if number is None or self._accesses[number].ended:
            while len(self._accesses) >= MAX_READERS:
                self._forget(next(iter(self._accesses)))
            if number is not None:
                self._forget(number)
            number = self._numbers[principal] = secrets.token_hex(8)
            self._accesses[number] = access
        return signed(self.secret, number)

    def reply(self, question: Question) -> Reply:
        """Which destinations a reader may read, of a few hundred at the most; none for one that must log in again."""
        access = self._accesses.get(question.reader)
        if access is None or access.ended:
            return Reply(question.number)
        wanted = [destination.partition("://") for destination in question.destinations]
        return Reply(
            question.number, [access.allows(Action.READ, DestinationKind(kind), name) for kind, _, name in wanted]
        )

    def _forget(self, number: str) -> None:
        del self._accesses[number]
        self._numbers = {principal: known for principal, known in self._numbers.items() if known != number}


def signed(secret: str, number: str) -> str:
    return f"{number}.{hmac.digest(secret.encode(), number.encode(), 'sha256').hex()}"


AT_ONCE = 500  # about how many destinations the broker is asked at once: it decides on them in a few milliseconds
MAX_KNOWN = 200_000  # how many answers are remembered; with more the memory begins anew


class UnknownReader(Exception):
    """A token that the broker did not give out, or does not know any more."""


class Rights:
    """What each reader may read; ``ask`` puts a question to the broker, which answers by ``answered``."""

    def __init__(self, secret: str, ask: Callable[[Question], None]) -> None:
        self.generation = 0
        self._secret = secret
        self._ask = ask
        self._number = 0
        self._waiting: dict[int, asyncio.Future[list[bool] | None]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def reader_of(self, token: str) -> str:
        number, _, _ = token.partition(".")
        if not hmac.compare_digest(signed(self._secret, number).encode(), token.encode()):
            raise UnknownReader
        return number

    async def readable(self, reader: str, destinations: Sequence[str]) -> set[str]:
        """Those of some destinations that a reader may read; ``UnknownReader``: it has to ask for another token."""
        found: dict[str, bool] = {}
        unknown: list[str] = []
        for destination in destinations:
            known = self._known.get((reader, destination))
            if known is None:
                unknown.append(destination)
            else:
                found[destination] = known
        for start in range(0, len(unknown), AT_ONCE):
            some = unknown[start : start + AT_ONCE]
            found |= dict(zip(some, await self._asked(reader, some), strict=True))
        return {destination for destination, allowed in found.items() if allowed}

    def answered(self, reply: Reply) -> None:
        waiting = self._waiting.pop(reply.number)
        if not waiting.done():
            waiting.set_result(reply.allowed)

    def changed(self) -> None:
        self.generation += 1
        self._known.clear()

    async def _asked(self, reader: str, destinations: list[str]) -> list[bool]:
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        generation = self.generation
        self._ask(Question(self._number, reader, destinations))
        allowed: list[bool] | None = await answer
        if allowed is None:
            raise UnknownReader
        if generation == self.generation:
            if len(self._known) + len(destinations) > MAX_KNOWN:
                self._known.clear()
            self._known |= {(reader, name): may for name, may in zip(destinations, allowed, strict=True)}
        return allowed
