"""The API's transfers: purge, move, copy, redrive; all messages of a queue, or chosen ones."""

from dataclasses import replace
from typing import Annotated

import msgspec

from quire.destination import DestinationKind, written
from quire.http.endpoint import Call, Endpoint, Fields, Limit
from quire.http.rights import MANAGE_QUEUE, READ_OR_MANAGE_QUEUE
from quire.management.message_transfer import Choice
from quire.security import Action

PACE = 0.1
"""A redrive at a rate sends what it may send in so many seconds at once."""

MAX_RATE = 1e9
"""The highest rate of a redrive, in messages a second: more than any store takes."""


class Chosen(Fields, frozen=True, kw_only=True):
    """Which messages: all, or those that a selector matches, or with some ids (message ids or sequences).

    ``limit`` is the maximum number, and ``after`` continues where an earlier request ended.
    """

    selector: str | None = None
    ids: list[str] = msgspec.field(default_factory=list)
    limit: Limit | None = None
    after: str | None = None

    def choice(self) -> Choice:
        """The same for the core."""
        return Choice(self.selector, self.ids, self.limit, after=self.after)


class Move(Chosen, frozen=True, kw_only=True):
    """What to move or copy, and where to: the name of a queue, or ``topic://NAME``."""

    to: str


class Redrive(Chosen, frozen=True, kw_only=True):
    """Which dead letters to redrive; ``to`` names another destination, ``rate`` is in messages per second."""

    to: str | None = None
    rate: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)] | None = None


class Purged(msgspec.Struct, frozen=True):
    """The number of removed messages, and the ``after`` to continue with if a limit ended the request."""

    removed: int
    next: str | None


class Moved(msgspec.Struct, frozen=True):
    """The number of moved messages, and the ``after`` to continue with if a limit ended the request."""

    moved: int
    next: str | None


class Copied(msgspec.Struct, frozen=True):
    """The number of copied messages, and the ``after`` to continue with if a limit ended the request."""

    copied: int
    next: str | None


async def _move(call: Call) -> Moved:
    to: str = call.body.to
    call.check_transfer(call.name, written(to))
    transfer = call.management.move(call.name, to, call.body.choice())
    return await call.transferred(
        "messages.moved", "messages of queue {queue} were moved to {to}", Moved, transfer, to=to
    )


async def _copy(call: Call) -> Copied:
    to: str = call.body.to
    call.check_transfer(call.name, written(to))
    transfer = call.management.copy(call.name, to, call.body.choice())
    return await call.transferred(
        "messages.copied", "messages of queue {queue} were copied to {to}", Copied, transfer, to=to
    )


async def _redrive(call: Call) -> Moved:
    body: Redrive = call.body
    if body.to is None:  # to where the messages came from, which their reader may not know
        call.require(Action.MANAGE, kind=DestinationKind.QUEUE, name=call.name)
    else:
        call.check_transfer(call.name, written(body.to))
    choice = body.choice() if body.rate is None else replace(body.choice(), step=max(1, int(body.rate * PACE)))
    transfer = call.management.redrive(call.name, choice, body.to)
    text = "dead letters of queue {queue} were redriven " + ("to {to}" if body.to else "to their origins")
    return await call.transferred("messages.redriven", text, Moved, transfer, rate=body.rate, to=body.to)


ENDPOINTS = [
    Endpoint(
        "POST", "/queues/{name}/purge", MANAGE_QUEUE, "Purge messages that are not in flight.",
        lambda call: call.transferred(
            "messages.purged", "queue {queue} was purged", Purged,
            call.management.purge(call.name, call.body.choice()),
        ),
        Purged, body=Chosen,
    ),
    Endpoint(
        "POST", "/queues/{name}/move", READ_OR_MANAGE_QUEUE,
        "Move messages that are not in flight, oldest first.", _move, Moved, body=Move
    ),
    Endpoint("POST", "/queues/{name}/copy", READ_OR_MANAGE_QUEUE,
    "Copy messages, oldest first.", _copy, Copied, body=Move),
    Endpoint(
        "POST", "/queues/{name}/redrive", READ_OR_MANAGE_QUEUE,
        "Redrive dead letters: send them back to the destinations they came from.",
        _redrive, Moved, body=Redrive,
    ),
]  # fmt: skip
