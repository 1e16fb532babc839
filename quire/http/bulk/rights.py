"""Who may read what, as the bulk server knows it: it asks the broker, and remembers the answers until they change."""

import asyncio
import hmac
from collections.abc import Callable, Sequence

from quire.http.bulk.handshake import Question, Reply
from quire.http.bulk.readers import signed

AT_ONCE = 500
"""About how many destinations the broker is asked at once: it decides on them in a few milliseconds."""

MAX_KNOWN = 200_000
"""How many answers are remembered; with more the memory begins anew."""


class UnknownReader(Exception):
    """A token that the broker did not give out, or does not know any more."""


class Rights:
    """What each reader may read.

    Args:
        secret: what signs the tokens.
        ask: puts a question to the broker, which answers by ``answered``.

    Attributes:
        generation: a number that is another one after each change of users, rules or tokens.
    """

    def __init__(self, secret: str, ask: Callable[[Question], None]) -> None:
        self.generation = 0
        self._secret = secret
        self._ask = ask
        self._number = 0
        self._waiting: dict[int, asyncio.Future[list[bool] | None]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def reader_of(self, token: str) -> str:
        """The reader that a token was given to.

        Raises:
            UnknownReader: the broker did not give it out.
        """
        number, _, _ = token.partition(".")
        if not hmac.compare_digest(signed(self._secret, number).encode(), token.encode()):
            raise UnknownReader
        return number

    async def readable(self, reader: str, destinations: Sequence[str]) -> set[str]:
        """Those of some destinations that a reader may read.

        Raises:
            UnknownReader: it has to ask the broker for another token.
        """
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
        """The broker has answered."""
        waiting = self._waiting.pop(reply.number)
        if not waiting.done():
            waiting.set_result(reply.allowed)

    def changed(self) -> None:
        """Users, rules or tokens have changed: nothing is known any more."""
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
