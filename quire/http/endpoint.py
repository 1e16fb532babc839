"""An endpoint of the API: what it takes, what it answers, and who does the work. OpenAPI is written from these rows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request

from quire.broker.bulk.row_reader import MAX_BYTES
from quire.errors import BrokerStopping, InvalidArgument, LimitExceeded, QuireError
from quire.http.bulk.launcher import Launcher
from quire.http.request_memory import RequestMemory
from quire.logs import event
from quire.management.management import MAX_PAGE, Management
from quire.management.stream_management import StreamManagement
from quire.management.topic_management import TopicManagement
from quire.server.service import Service
from quire.units import LARGEST, parse_number

Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""A whole number that a client gives: every one of the API has a range, and this is the widest."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]

ENTRIES = 20
"""So many entries of a list are made at once: some milliseconds."""

T = TypeVar("T")


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request; one that is unknown is an error."""


class ListQuery(Fields, frozen=True):
    """Which part of a list to show."""

    limit: PageLimit = 100
    after: str = ""


class DeleteQuery(Fields, frozen=True):
    """How to delete something: ``force`` disconnects its consumers first."""

    force: bool = False


class Removed(msgspec.Struct, frozen=True):
    """How many messages were removed."""

    removed: int


class Call:
    """One request, read and checked.

    Args:
        service: the broker's process.
        management: what it can do with queues.
        topics: what it can do with topics and durable subscriptions.
        streams: what it can do with streams.
        bulk: its bulk server.
        path: the names in the path, decoded.
        query: what stands after the question mark.
        body: what was sent.
        client: who calls.
        request: the request itself.

    Attributes:
        name: the destination in the path; empty if there is none.
    """

    def __init__(
        self, service: Service, management: Management, topics: TopicManagement, streams: StreamManagement,
        bulk: Launcher, path: Mapping[str, str], query: Any, body: Any, client: str, request: Request,
    ) -> None:  # fmt: skip
        self.service = service
        self.management = management
        self.topics = topics
        self.streams = streams
        self.bulk = bulk
        self.path = path
        self.name = path.get("name", "")
        self.query = query
        self.body = body
        self._client = client
        self._request = request

    @property
    def host(self) -> str:
        """Under which name or address the caller has reached the broker."""
        return self._request.url.hostname or "127.0.0.1"

    async def is_gone(self) -> bool:
        """Whether the caller went away meanwhile."""
        return await self._request.is_disconnected()

    def audit(self, name: str, text: str, **data: Any) -> None:
        """Log what an operator has changed.

        Args:
            name: the event's stable name.
            text: what happened, for people.
            **data: what it happened to.
        """
        event(name, f"{text}, by {self._client}", by=self._client, **data)

    async def durable(self) -> None:
        """Wait until everything in the open commit is durable.

        Raises:
            QuireError: the commit failed.
        """
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self.management.confirm(lambda error: None if done.done() else done.set_result(error))
        if error := await done:
            raise error

    async def total(self, steps: Iterable[int], name: str, text: str, *, rate: float | None = None, **data: Any) -> int:
        """Do step after step, each durable before the next one; the event loop has its turn in between.

        What was done is logged at the end, also if that is an error half-way.

        Args:
            steps: yield how many messages each was about.
            name: the event's name.
            text: what happened to the messages, for people.
            rate: how many messages a second; it ends when the caller goes away.
            **data: for the log.

        Returns:
            The sum of what they yielded.

        Raises:
            QuireError: a step failed, or the broker is going down. The steps before are done.
        """
        total, is_whole, began = 0, False, self.service.clock.monotonic()
        try:
            for count in steps:
                total += count
                await self.durable()
                if rate is not None:
                    await self._wait(began + total / rate)
                    if await self.is_gone():
                        break
                if self.service.is_stopping:
                    raise BrokerStopping(f"the broker is going down; {total} messages are done", done=total)
            else:
                is_whole = True
        finally:
            if total or is_whole:
                part = "" if is_whole else " in part"
                self.audit(name, f"{text}{part}: {total} messages", messages=total, whole=is_whole, **data)
        return total

    async def gathered(self, entries: Iterable[T], limit: int | None = None) -> list[T]:
        """The entries of a list; the event loop has its turn in between.

        Args:
            entries: makes each when it is asked for it.
            limit: how many at the most; None for all.
        """
        gathered: list[T] = []
        for entry in islice(entries, limit):
            gathered.append(entry)
            if len(gathered) % ENTRIES == 0:
                await asyncio.sleep(0)
        return gathered

    async def done_or_gone(self, begin: Callable[[Callable[[], None]], None]) -> bool:
        """Wait until something is done, or the caller goes away, in this request's own task.

        Args:
            begin: begins it; gets what it is to call when it is done.

        Returns:
            Whether it is done, and the caller is there still.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as wait:
                begin(lambda: wait.reschedule(loop.time()))
                while (await self._request.receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return True
        return False

    async def _wait(self, until: float) -> None:
        """Wait for a time on the monotonic clock."""
        seconds = until - self.service.clock.monotonic()
        if seconds > 0:
            due = asyncio.Event()
            self.service.broker.core.scheduler.call_later(seconds, due.set)
            await due.wait()


class Endpoint(NamedTuple):
    """A row of the API.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: below ``/api/v1``; ``{name}`` stands for the name of a destination, percent-encoded.
        summary: what it does, for the document.
        handle: does it.
        answer: the type of the answer.
        query: the type of the parameters after the question mark, if it takes any.
        body: the type of what it takes, if anything.
        status: the HTTP status of success.
        packed: whether it takes MessagePack instead of JSON: rows with bodies of any bytes.
        takes_message: whether it takes a message's body, which may be as large as ``stomp.max_body``.
    """

    method: str
    path: str
    summary: str
    handle: Callable[[Call], Awaitable[Any]]
    answer: Any
    query: type[Fields] = Fields
    body: type[msgspec.Struct] | None = None
    status: int = 200
    packed: bool = False
    takes_message: bool = False


async def read_call(
    endpoint: Endpoint, request: Request, service: Service, management: Management, topics: TopicManagement,
    streams: StreamManagement, bulk: Launcher, path: Mapping[str, str],
) -> Call:  # fmt: skip
    """Read and check a request.

    Raises:
        InvalidArgument: it has a field that is unknown, missing, or of the wrong type.
        LimitExceeded: its body is larger than ``stomp.max_body``, or than anything but a message may be.
        BrokerBusy: there is no memory for it beside other requests.
    """
    limit = service.settings.stomp.max_body
    content = await _read_body(request, limit if endpoint.takes_message else min(limit, MAX_BYTES))
    try:
        query = msgspec.convert(dict(request.query_params), endpoint.query, strict=False)
        if endpoint.body is None and bytes(content.strip()) not in (b"", b"{}"):
            raise InvalidArgument(f"{endpoint.method} {endpoint.path} takes no body")
        body = None if endpoint.body is None else _decode(endpoint, endpoint.body, content)
    except (msgspec.MsgspecError, UnicodeError) as error:  # text that is no UTF-8 comes as the latter
        raise InvalidArgument(f"the request cannot be taken: {error}") from error
    client = f"{request.client.host}:{request.client.port}" if request.client else "unknown"
    return Call(service, management, topics, streams, bulk, path, query, body, client, request)


def _decode(endpoint: Endpoint, kind: type[msgspec.Struct], content: bytearray) -> msgspec.Struct:
    if endpoint.packed:
        return msgspec.msgpack.decode(content, type=kind)
    return msgspec.json.decode(content or b"{}", type=kind)


async def _read_body(request: Request, limit: int) -> bytearray:
    """The body, refused as soon as it is known to be too large, or too much with all others."""
    memory: RequestMemory = request.scope["memory"]
    announced = request.headers.get("content-length", "0")
    size, body = parse_number(announced) or 0, bytearray()
    if size <= limit:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                break
            memory.take(len(part))
            body += part
    if size > limit:
        raise LimitExceeded(f"the request's body is larger than {limit} bytes", limit=limit)
    return body
