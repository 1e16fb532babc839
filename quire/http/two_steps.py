"""Actions in two steps: a dry run tells what an action would do, and gives a token that stands for exactly that."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from quire.clock import Clock
from quire.errors import ConfirmationMismatch
from quire.management.described import doc

LIFETIME_MS = 600_000
"""How long a token may be used, in milliseconds."""

COUNT_LIMIT = 1.0
"""How many seconds a dry run counts; what it has counted then is the least."""


class Counted(NamedTuple):
    """What an action would do."""

    messages: int  # to how many messages
    is_least: bool = False  # whether there may be more
    consumers: int = 0  # how many consumers or members it would disconnect, with ``force``


class DryRun(msgspec.Struct, frozen=True):
    """What an action would do. Nothing has changed."""

    action: Annotated[str, doc("The request: method and path.")]
    target: Annotated[dict[str, str], doc("What the action is about: the names in the path.")]
    count: Annotated[int, doc("How many messages it would touch now.")]
    at_least: Annotated[bool, doc("Whether the broker stopped counting: there may be more.")]
    consumers: Annotated[int, doc("How many consumers or members are there.")]
    token: Annotated[str, doc("Send the same request with this as ``token`` to do it.")]
    ends_at: Annotated[int, doc("Until when the token may be used, in milliseconds since the epoch.")]


class Intent(NamedTuple):
    """Everything that a token is bound to."""

    user: str  # who asks
    action: str  # the method and the path, with its names
    query: bytes  # what else the query says, as JSON
    body: bytes  # what the body says, as JSON


class Confirmations:
    """Makes tokens and checks them. Nothing is remembered of one: it carries its own proof."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def token(self, intent: Intent) -> tuple[str, int]:
        """A token for an action, and when it ends."""
        ends = self._now() + LIFETIME_MS
        return f"{ends}.{self._proof(intent, ends)}", self._clock.now_ms() + LIFETIME_MS

    def check(self, token: str, intent: Intent) -> None:
        """Refuse a token that is for something else, or whose time is over."""
        ends, _, proof = token.partition(".")
        end = int(ends) if ends.isascii() and ends.isdecimal() and len(ends) < 20 else 0
        if not hmac.compare_digest(self._proof(intent, end), proof if proof.isascii() else ""):
            raise ConfirmationMismatch("the token is of another request: user, action, target or selection differ")
        if self._now() > end:
            raise ConfirmationMismatch("the time of the token is over")

    def _now(self) -> int:
        """Milliseconds on the monotonic clock: a token is checked by the process that made it."""
        return int(self._clock.monotonic() * 1000)

    def _proof(self, intent: Intent, end: int) -> str:
        signed = msgspec.msgpack.encode((*intent, end))
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()


async def counted(clock: Clock, steps: Iterable[int], consumers: int = 0) -> Counted:
    """Count by steps that change nothing; for a second at the most."""
    end, count = clock.monotonic() + COUNT_LIMIT, 0
    for found in steps:
        count += found
        await asyncio.sleep(0)
        if clock.monotonic() >= end:
            return Counted(count, True, consumers)
    return Counted(count, False, consumers)
