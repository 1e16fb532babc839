"""An endpoint of the API: what it takes, what it answers, and who does the work. OpenAPI is written from these rows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from quire.broker.management import Management
from quire.broker.service import Service
from quire.errors import BrokerStopping, InvalidArgument, LimitExceeded, QuireError


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request; one that is unknown is an error."""


class Removed(msgspec.Struct, frozen=True):
    """How many messages were removed."""

    removed: int


class Moved(msgspec.Struct, frozen=True):
    """How many messages were moved."""

    moved: int


class Call:
    """One request, read and checked.

    Args:
        service: the broker's process.
        management: what it can do.
        name: the queue in the path; empty if there is none.
        query: what stands after the question mark.
        body: the JSON that was sent.
    """

    def __init__(self, service: Service, management: Management, name: str, query: Any, body: Any) -> None:
        self.service = service
        self.management = management
        self.name = name
        self.query = query
        self.body = body

    async def durable(self) -> None:
        """Wait until everything in the open commit is durable.

        Raises:
            QuireError: the commit failed.
        """
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self.management.confirm(lambda error: None if done.done() else done.set_result(error))
        if error := await done:
            raise error

    async def total(self, steps: Iterable[int]) -> int:
        """Do step after step, each durable before the next one; the event loop has its turn in between.

        Returns:
            The sum of what they yielded.

        Raises:
            QuireError: a step failed, or the broker is going down. The steps before are done.
        """
        total = 0
        for count in steps:
            await self.durable()
            total += count
            if self.service.is_stopping:
                raise BrokerStopping(f"the broker is going down; {total} messages are done", done=total)
        return total


class Endpoint(NamedTuple):
    """A row of the API.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: below ``/api/v1``; ``{name}`` stands for a queue's name, percent-encoded.
        summary: what it does, for the document.
        handle: does it.
        answer: the type of the answer.
        query: the type of the parameters after the question mark, if it takes any.
        body: the type of the JSON it takes, if any.
        status: the HTTP status of success.
    """

    method: str
    path: str
    summary: str
    handle: Callable[[Call], Awaitable[Any]]
    answer: Any
    query: type[Fields] = Fields
    body: type[Fields] | None = None
    status: int = 200


async def read_call(endpoint: Endpoint, request: Request, service: Service, management: Management, name: str) -> Call:
    """Read and check a request.

    Raises:
        InvalidArgument: it has a field that is unknown, missing, or of the wrong type.
        LimitExceeded: its body is larger than ``stomp.max_body``.
    """
    content = await _read_body(request, service.settings.stomp.max_body)
    try:
        query = msgspec.convert(dict(request.query_params), endpoint.query, strict=False)
        if endpoint.body is None and content.strip() not in (b"", b"{}"):
            raise InvalidArgument(f"{endpoint.method} {endpoint.path} takes no body")
        body = None if endpoint.body is None else msgspec.json.decode(content or b"{}", type=endpoint.body)
    except (msgspec.MsgspecError, UnicodeError) as error:  # text that is no UTF-8 comes as the latter
        raise InvalidArgument(f"the request cannot be taken: {error}") from error
    return Call(service, management, name, query, body)


async def _read_body(request: Request, limit: int) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "0")
    size, parts = int(announced) if announced.isdecimal() else 0, []
    if size <= limit:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                break
            parts.append(part)
    if size > limit:
        raise LimitExceeded(f"the request's body is larger than {limit} bytes", limit=limit)
    return b"".join(parts)
