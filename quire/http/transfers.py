"""The API's transfers: purge, move, copy, redrive; all messages of a queue, or chosen ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from quire.destination import Destination, DestinationKind, written
from quire.http.endpoint import ActionQuery, Call, Endpoint, Fields, Limit
from quire.http.rights import MANAGE_QUEUE, READ_OR_MANAGE_QUEUE
from quire.http.two_steps import Counted, counted
from quire.management.message_transfer import Choice, MessageTransfer
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

    def choice(self, call: Call, source: Destination | None = None) -> Choice:
        """The same for the core: messages of the queue in the path, or those of another source."""
        call.guard.check_selector(source or Destination(DestinationKind.QUEUE, call.name), self.selector)
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


def _count(call: Call, transfer: Callable[..., MessageTransfer], *arguments: Any) -> Any:
    """Count what a transfer is about; without a selection that is known at once."""
    steps = transfer(*arguments, counts=True)
    chosen: Chosen = call.body
    if chosen.selector is None and not chosen.ids and chosen.after is None and steps.expected is not None:
        return Counted(steps.expected)
    return counted(call.service.clock, steps)


def count_purge(
    call: Call, transfer: Callable[..., MessageTransfer], *names: str, source: Destination | None = None
) -> Any:
    """What a dry run of a purge tells."""
    return _count(call, transfer, *names, call.body.choice(call, source))


def _count_move(call: Call, transfer: Callable[..., MessageTransfer]) -> Any:
    return _count(call, transfer, call.name, call.body.to, call.body.choice(call))


def _count_redrive(call: Call) -> Any:
    """Which messages are dead letters only their contents tell."""
    steps = call.management.redrive(call.name, call.body.choice(call), call.body.to, call.guard, counts=True)
    return counted(call.service.clock, steps)


def _may_choose(call: Call) -> None:
    call.body.choice(call)


def _may_transfer(call: Call) -> None:
    _may_choose(call)
    call.check_transfer(call.name, written(call.body.to))


def _may_redrive(call: Call) -> None:
    _may_choose(call)
    if call.body.to is None:  # to where the messages came from, which their reader may not know
        call.require(Action.MANAGE, kind=DestinationKind.QUEUE, name=call.name)
    else:
        _may_transfer(call)


async def _move(call: Call) -> Moved:
    to: str = call.body.to
    transfer = call.management.move(call.name, to, call.body.choice(call), call.guard)
    return await call.transferred(
        "messages.moved", "messages of queue {queue} were moved to {to}", Moved, transfer, to=to
    )


async def _copy(call: Call) -> Copied:
    to: str = call.body.to
    transfer = call.management.copy(call.name, to, call.body.choice(call), call.guard)
    return await call.transferred(
        "messages.copied", "messages of queue {queue} were copied to {to}", Copied, transfer, to=to
    )


async def _redrive(call: Call) -> Moved:
    body: Redrive = call.body
    choice = body.choice(call) if body.rate is None else replace(body.choice(call), step=max(1, int(body.rate * PACE)))
    transfer = call.management.redrive(call.name, choice, body.to, call.guard)
    text = "dead letters of queue {queue} were redriven " + ("to {to}" if body.to else "to their origins")
    return await call.transferred("messages.redriven", text, Moved, transfer, rate=body.rate, to=body.to)


ENDPOINTS = [
    Endpoint(
        "POST", "/queues/{name}/purge", MANAGE_QUEUE, "Purge messages that are not in flight.",
        lambda call: call.transferred(
            "messages.purged", "queue {queue} was purged", Purged,
            call.management.purge(call.name, call.body.choice(call)),
        ),
        Purged, ActionQuery, Chosen, dry_run=lambda call: count_purge(call, call.management.purge, call.name),
        check=_may_choose,
    ),
    Endpoint(
        "POST", "/queues/{name}/move", READ_OR_MANAGE_QUEUE,
        "Move messages that are not in flight, oldest first.", _move, Moved, ActionQuery, Move,
        dry_run=lambda call: _count_move(call, call.management.move), check=_may_transfer,
    ),
    Endpoint(
        "POST", "/queues/{name}/copy", READ_OR_MANAGE_QUEUE, "Copy messages, oldest first.", _copy, Copied,
        ActionQuery, Move, dry_run=lambda call: _count_move(call, call.management.copy), check=_may_transfer,
    ),
    Endpoint(
        "POST", "/queues/{name}/redrive", READ_OR_MANAGE_QUEUE,
        "Redrive dead letters: send them back to the destinations they came from.",
        _redrive, Moved, ActionQuery, Redrive, dry_run=_count_redrive, check=_may_redrive,
    ),
]  # fmt: skip
