"""The API's messages: browse, send; purge, move, copy, redrive; all messages of a queue, or chosen ones."""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from quire.destination import Destination, DestinationKind, checked, written
from quire.errors import InvalidArgument
from quire.http.endpoint import (
    MANAGE_QUEUE,
    READ_OR_MANAGE_QUEUE,
    READ_QUEUE,
    WRITE_QUEUE,
    WRITE_TOPIC,
    ActionQuery,
    Call,
    Endpoint,
    Fields,
    Limit,
    PageLimit,
)
from quire.http.operations import Counted, counted
from quire.management.messages import PREVIEW, Browsable, BrowsePage, Choice, Draft, MessageTransfer, browse
from quire.security import Action

MAX_COUNT = 100_000  # how often one call may send a message: it answers with an id for each


MAX_STATE = 512  # the longest ``tracestate`` that is passed on, in characters, as Trace Context has it

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class BrowseQuery(Fields, frozen=True):
    """Which part of a queue to show, and which messages of it.

    ``preview`` is how many bytes of a body are shown; without it all of them.
    """

    limit: PageLimit = 100
    after: str | None = None
    selector: str | None = None
    id: str | None = None
    preview: Annotated[int, msgspec.Meta(ge=0, le=PREVIEW)] | None = None


def browsed(call: Call, source: Browsable) -> BrowsePage:
    query = call.query
    return browse(
        call.broker.core, source, query.after, query.limit, query.selector, id=query.id, preview=query.preview
    )


class NewMessage(Fields, frozen=True):
    """A message to send, and how often. ``expiration`` is in milliseconds since the epoch, 0 for never."""

    body: str
    body_encoding: Literal["text", "base64"] = "text"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 4
    expiration: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    persistent: bool = True
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)] = 1


class Sent(msgspec.Struct, frozen=True):
    """How many messages were sent, durable as the store's ``sync`` says, and their message ids."""

    sent: int
    ids: list[str]


async def send(call: Call, kind: DestinationKind) -> Sent:
    new: NewMessage = call.body
    call.check_target(checked(kind, call.name))
    draft = Draft(_body(new), _trace_of(call, new.headers) | new.headers, new.priority, new.expiration, new.persistent)
    ids: list[str] = []
    for step in call.admin.queues.send(call.name, draft, new.count, kind, call.guard.sender):
        await call.durable()
        ids += step
    return Sent(len(ids), ids)


def _trace_of(call: Call, headers: dict[str, str]) -> dict[str, str]:
    """The trace of the request, for a message without one of its own; one that is not valid is none (W3C)."""
    parent, state = call.request.headers.get("traceparent"), call.request.headers.get("tracestate")
    if "traceparent" in headers or parent is None or not _TRACEPARENT.fullmatch(parent):
        return {}
    is_state = state is not None and state.isprintable() and len(state) <= MAX_STATE
    return {"traceparent": parent} | ({"tracestate": state} if is_state and state else {})


def _body(new: NewMessage) -> bytes:
    if new.body_encoding == "text":
        return new.body.encode()
    try:
        return base64.b64decode(new.body, validate=True)
    except ValueError as error:  # what is no ASCII is no binascii.Error
        raise InvalidArgument(f"body is not base64: {error}", argument="body") from error


ENDPOINTS = [
    Endpoint(
        "GET", "/queues/{name}/messages", READ_QUEUE, "Browse messages, oldest first, without consuming them.",
        lambda call: browsed(call, call.broker.destinations.existing_queue(call.name)), BrowsePage, BrowseQuery,
    ),
    Endpoint(
        "POST", "/queues/{name}/messages", WRITE_QUEUE, "Send a message. The answer comes when it is durable.",
        lambda call: send(call, DestinationKind.QUEUE), Sent, body=NewMessage, status=201, takes_message=True,
    ),
    Endpoint(
        "POST", "/topics/{name}/messages", WRITE_TOPIC,
        "Send a message. The answer comes when it is durable for all durable subscriptions.",
        lambda call: send(call, DestinationKind.TOPIC), Sent, body=NewMessage, status=201, takes_message=True,
    ),
]  # fmt: skip


PACE = 0.1  # a redrive at a rate sends what it may send in so many seconds at once
MAX_RATE = 1e9  # the highest rate of a redrive, in messages a second: more than any store takes


class Chosen(Fields, frozen=True, kw_only=True):
    """Which messages: all, or those that a selector matches, or with some ids (message ids or sequences).

    ``limit`` is the maximum number, and ``after`` continues where an earlier request ended.
    """

    selector: str | None = None
    ids: list[str] = msgspec.field(default_factory=list)
    limit: Limit | None = None
    after: str | None = None

    def choice(self, call: Call, source: Destination | None = None) -> Choice:
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


def count(call: Call, steps: MessageTransfer) -> Any:
    """Count what a transfer is about; without a selection that is known at once."""
    chosen: Chosen = call.body
    if chosen.selector is None and not chosen.ids and chosen.after is None and steps.expected is not None:
        return Counted(steps.expected)
    return counted(call.service.clock, steps)


def _count_move(call: Call, transfer: Callable[..., MessageTransfer]) -> Any:
    return count(call, transfer(call.name, call.body.to, call.body.choice(call), counts=True))


def _count_redrive(call: Call) -> Any:
    """Which messages are dead letters only their contents tell."""
    steps = call.admin.queues.redrive(call.name, call.body.choice(call), call.body.to, call.guard, counts=True)
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
    transfer = call.admin.queues.move(call.name, to, call.body.choice(call), call.guard)
    return await call.transferred(
        "messages.moved", "messages of queue {queue} were moved to {to}", Moved, transfer, to=to
    )


async def _copy(call: Call) -> Copied:
    to: str = call.body.to
    transfer = call.admin.queues.copy(call.name, to, call.body.choice(call), call.guard)
    return await call.transferred(
        "messages.copied", "messages of queue {queue} were copied to {to}", Copied, transfer, to=to
    )


async def _redrive(call: Call) -> Moved:
    body: Redrive = call.body
    choice = body.choice(call) if body.rate is None else replace(body.choice(call), step=max(1, int(body.rate * PACE)))
    transfer = call.admin.queues.redrive(call.name, choice, body.to, call.guard)
    text = "dead letters of queue {queue} were redriven " + ("to {to}" if body.to else "to their origins")
    return await call.transferred("messages.redriven", text, Moved, transfer, rate=body.rate, to=body.to)


ENDPOINTS += [
    Endpoint(
        "POST", "/queues/{name}/purge", MANAGE_QUEUE, "Purge messages that are not in flight.",
        lambda call: call.transferred(
            "messages.purged", "queue {queue} was purged", Purged,
            call.admin.queues.purge(call.name, call.body.choice(call)),
        ),
        Purged, ActionQuery, Chosen,
        dry_run=lambda call: count(call, call.admin.queues.purge(call.name, call.body.choice(call), counts=True)),
        check=_may_choose,
    ),
    Endpoint(
        "POST", "/queues/{name}/move", READ_OR_MANAGE_QUEUE, "Move messages that are not in flight, oldest first.",
        _move, Moved, ActionQuery, Move, dry_run=lambda call: _count_move(call, call.admin.queues.move),
        check=_may_transfer,
    ),
    Endpoint(
        "POST", "/queues/{name}/copy", READ_OR_MANAGE_QUEUE, "Copy messages, oldest first.", _copy, Copied, ActionQuery,
        Move, dry_run=lambda call: _count_move(call, call.admin.queues.copy), check=_may_transfer,
    ),
    Endpoint(
        "POST", "/queues/{name}/redrive", READ_OR_MANAGE_QUEUE,
        "Redrive dead letters: send them back to the destinations they came from.", _redrive, Moved, ActionQuery,
        Redrive, dry_run=_count_redrive, check=_may_redrive,
    ),
]  # fmt: skip
