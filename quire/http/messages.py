"""The API's messages: browse and send."""

import base64
import re
from typing import Annotated, Literal

import msgspec

from quire.destination import DestinationKind, checked
from quire.errors import InvalidArgument
from quire.http.endpoint import Call, Endpoint, Fields, PageLimit
from quire.http.rights import READ_QUEUE, WRITE_QUEUE, WRITE_TOPIC
from quire.management.body_preview import PREVIEW
from quire.management.draft import Draft
from quire.management.message_pages import BrowsePage
from quire.management.message_view import Browsable

MAX_COUNT = 100_000
"""How often one call may send a message: it answers with an id for each."""


MAX_STATE = 512
"""The longest ``tracestate`` that is passed on, in characters, as Trace Context has it."""

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
    """The page of a queue or a durable subscription that a call asks for."""
    query = call.query
    return call.management.pages.read(
        source, query.after, query.limit, query.selector, id=query.id, preview=query.preview
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
    """Send a message some times, each step durable before the next one."""
    new: NewMessage = call.body
    call.check_target(checked(kind, call.name))
    draft = Draft(_body(new), _trace_of(call, new.headers) | new.headers, new.priority, new.expiration, new.persistent)
    ids: list[str] = []
    for step in call.management.send(call.name, draft, new.count, kind, call.guard.sender):
        await call.durable()
        ids += step
    return Sent(len(ids), ids)


def _trace_of(call: Call, headers: dict[str, str]) -> dict[str, str]:
    """The trace of the request, for a message without one of its own; one that is not valid is none (W3C)."""
    parent, state = call.header("traceparent"), call.header("tracestate")
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
        lambda call: browsed(call, call.management.existing(call.name)),
        BrowsePage, BrowseQuery,
    ),
    Endpoint(
        "POST", "/queues/{name}/messages", WRITE_QUEUE, "Send a message. The answer comes when it is durable.",
        lambda call: send(call, DestinationKind.QUEUE), Sent, body=NewMessage, status=201, takes_message=True,
    ),
    Endpoint(
        "POST", "/topics/{name}/messages",
        WRITE_TOPIC, "Send a message. The answer comes when it is durable for all durable subscriptions.",
        lambda call: send(call, DestinationKind.TOPIC), Sent, body=NewMessage, status=201, takes_message=True,
    ),
]  # fmt: skip
