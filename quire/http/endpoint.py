"""An endpoint of the API: what it takes, what its caller must be allowed to do, what it answers, who does the work.

The rows of all endpoints are the API: the application routes by them, and its own description (OpenAPI 3.1) is written
from them. Lists are sorted, searched and paged by the broker.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import Request

from quire import __version__
from quire.broker.bulk.row_reader import MAX_BYTES
from quire.broker.routing.addresses import Address
from quire.destination import Destination, DestinationKind
from quire.errors import BrokerStopping, IllegalState, InvalidArgument, InvalidDestination, LimitExceeded, QuireError
from quire.http.operations import Operation, RequestMemory
from quire.http.services import Services
from quire.logs import event
from quire.management.messages import MAX_PAGE, MessageTransfer
from quire.management.tables import Selection, Table, Wanted
from quire.security import Access, Action, Permission
from quire.sessions.rights import Guard
from quire.units import LARGEST, parse_number

Names = Mapping[str, str]  # the names in the path of a request, decoded


class Right(NamedTuple):
    text: str  # in words, for the document
    check: Callable[[Access, Names], None]  # raises ``AccessRefused``, whether there is what the path names or not
    is_free: bool = False  # whether one need not log in
    is_operation: bool = True  # whether the audit log always has a call that changes something


def _nothing(_access: Access, _names: Names) -> None:
    """What the handler itself checks, since it depends on the body, or what each user may do."""


def _has(permission: Permission, text: str) -> Right:
    return Right(text, lambda access, _names: access.require(permission))


FREE = Right("none, not even a login", _nothing, is_free=True)
USER = Right("a login", _nothing)
MONITOR = _has(Permission.MONITOR, "the role monitor, operator or administrator")
OPERATE = _has(Permission.OPERATE, "the role operator or administrator")
ADMINISTER = _has(Permission.ADMINISTER, "the role administrator")


def rows_of(text: str) -> Right:
    """Data whose destinations the handler checks one by one."""
    return Right(text, _nothing, is_operation=False)


def on(kind: DestinationKind, *actions: Action, key: str = "name") -> Right:
    is_operation = Action.MANAGE in actions  # the application tells the audit log of it, and ``Access`` of the others

    def check(access: Access, names: Names) -> None:
        if not is_operation:
            access.check(actions[0], kind, names[key])
        elif not any([access.allows(action, kind, names[key]) for action in actions]):
            raise access.refusal(actions[0], kind, names[key])

    return Right(f"{' or '.join(actions)} on the {kind}", check, is_operation=is_operation)


def seeing(kind: DestinationKind, key: str = "name") -> Right:
    def check(access: Access, names: Names) -> None:
        if not access.sees(kind, names[key]):
            raise access.refusal(Action.READ, kind, names[key])

    return Right(f"monitor, or read, write or manage on the {kind}", check)


_QUEUE, _TOPIC, _STREAM = DestinationKind.QUEUE, DestinationKind.TOPIC, DestinationKind.STREAM

SEE_QUEUE, SEE_TOPIC, SEE_STREAM = seeing(_QUEUE), seeing(_TOPIC), seeing(_STREAM)
READ_QUEUE, READ_STREAM = on(_QUEUE, Action.READ), on(_STREAM, Action.READ)
WRITE_QUEUE, WRITE_TOPIC, WRITE_STREAM = on(_QUEUE, Action.WRITE), on(_TOPIC, Action.WRITE), on(_STREAM, Action.WRITE)
MAKE_QUEUE, MAKE_TOPIC, MAKE_STREAM = [on(kind, Action.CREATE, Action.MANAGE) for kind in (_QUEUE, _TOPIC, _STREAM)]
MANAGE_QUEUE, MANAGE_TOPIC, MANAGE_STREAM = [on(kind, Action.MANAGE) for kind in (_QUEUE, _TOPIC, _STREAM)]
READ_OR_MANAGE_QUEUE, READ_OR_MANAGE_STREAM = [on(kind, Action.READ, Action.MANAGE) for kind in (_QUEUE, _STREAM)]
SEE_STREAM_OF_GROUP, MANAGE_STREAM_OF_GROUP = seeing(_STREAM, "stream"), on(_STREAM, Action.MANAGE, key="stream")


Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""A whole number that a client gives: every one of the API has a range, and this is the widest."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]

LOOK = 1.0  # so often an operation that waits looks whether it is cancelled, in seconds
ENTRIES = 20  # so many entries of a list are made at once: some milliseconds

_KINDS = {"queues": "queue", "topics": "topic", "streams": "stream", "durables": "subscription"}
"""What a ``{name}`` in the path is the name of, by how the path begins."""

T = TypeVar("T")


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request; one that is unknown is an error."""


class ListQuery(Fields, frozen=True):
    """Which part of a list to show."""

    limit: PageLimit = 100
    after: str = ""


class ActionQuery(Fields, frozen=True):
    """How an action is done.

    With ``dry_run`` the answer tells what it would do, and gives a ``token``; with that token the action is refused if
    anything but the token differs. With ``background`` the answer comes at once, and tells the id of the operation.
    """

    dry_run: bool = False
    token: str | None = None
    background: bool = False


class DeleteQuery(ActionQuery, frozen=True):
    """With ``force`` the broker disconnects consumers first."""

    force: bool = False


class Removed(msgspec.Struct, frozen=True):
    """How many messages were removed."""

    removed: int


class Call:
    def __init__(self, services: Services, endpoint: "Endpoint", request: Request, access: Access) -> None:
        self.services = services
        self.admin = services.admin
        self.service = services.service
        self.broker = services.service.broker
        self.request = request
        self.access = access
        self.guard = Guard(self.service.gate, access)
        self.operation: Operation | None = None  # the one in the background that this is
        self.path = _names(request)  # the names in the path, decoded
        self.name = self.path.get("name", "")  # the destination
        kind = _KINDS.get(endpoint.path.split("/")[1], "")
        # The names by what they are, for the log: ``queue``, not ``name``.
        self.subject = {kind if key == "name" else key: name for key, name in self.path.items()}
        self.query: Any = None
        self.body: Any = None
        self.changes: dict[str, Any] = {}  # what the audit log is to have of what was done

    @property
    def user(self) -> str:
        return self.access.principal.name

    @property
    def by(self) -> str:
        name, address = self.access.principal.name, self.access.origin.address
        return f"{name} at {address}" if name else address

    @property
    def target(self) -> str:
        return " ".join([f"{what} {name}" for what, name in self.subject.items()])

    @property
    def is_part(self) -> bool:
        """Whether another process of the cluster asks, and joins the answer with those of other shards."""
        return bool(self.request.scope.get("is_part"))

    async def is_gone(self) -> bool:
        """Whether the caller went away meanwhile; no caller waits for what is done in the background."""
        return self.operation is None and await self.request.is_disconnected()

    def audit(self, event_name: str, text: str, **data: Any) -> None:
        """Log what an operator has changed; the text may name what is in the path, and the data: ``{queue}``."""
        known = self.subject | data
        self.changes |= {"event": event_name, **data}
        event(event_name, f"{text.format_map(known)}, by {self.by}", by=self.by, **known)

    def require(self, *actions: Action, kind: DestinationKind, name: str) -> None:
        if not any([self.access.allows(action, kind, name) for action in actions]):
            raise self.access.refusal(actions[0], kind, name)

    def check_target(self, destination: Destination) -> None:
        """Refuse to send to a destination that the caller may not write to, or would have to create and may not."""
        self._check_shard(destination)
        self.guard.check_send([Address(destination.kind, destination.name)])

    def check_transfer(self, source: str, target: Destination) -> None:
        self._check_shard(target)
        self.guard.check_transfer(Destination(DestinationKind.QUEUE, source), f"/{target.kind}/{target.name}")

    def _check_shard(self, destination: Destination) -> None:
        """Refuse to send to a destination of another shard: it would be made here, where no client looks for it."""
        context = self.services.context
        if context is not None and not context.map.is_own(destination):
            text = f"{destination} lies at another shard of the cluster: messages are moved within a shard only"
            raise IllegalState(text, destination=str(destination))

    async def changed(self, event_name: str, text: str, answer: T, **data: Any) -> T:
        self.audit(event_name, text, **data)
        await self.durable()
        return answer

    async def durable(self) -> None:
        """Wait until everything in the open commit is durable; a commit that fails is an error."""
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self.admin.queues.confirm(lambda error: None if done.done() else done.set_result(error))
        if error := await done:
            raise error

    async def total(
        self, event_name: str, text: str, steps: Iterable[int], *, rate: float | None = None, **data: Any
    ) -> int:
        """Do step after step, each durable before the next; with a rate until the caller leaves."""
        total, is_whole, began = 0, False, self.service.clock.monotonic()
        operation = self.operation or self.services.operations.begin(event_name, self.target, self.by, self.user)
        operation.progress(0, getattr(steps, "expected", None))
        try:
            for count in steps:
                total += count
                await self.durable()
                operation.progress(total)
                if rate is not None:
                    await self._wait(began + total / rate, operation)
                    if await self.is_gone():
                        break
                if operation.is_cancelled:
                    break
                if self.service.is_stopping:
                    raise BrokerStopping(f"the broker is stopping after {total} messages", done=total)
            else:
                is_whole = True
        except BaseException as error:
            self._ended(operation, error)
            raise
        else:
            self._ended(operation)
        finally:
            if total or is_whole:
                part = "" if is_whole else " in part"
                self.audit(event_name, f"{text}{part}: {{messages}} messages", messages=total, whole=is_whole, **data)
        return total

    def _ended(self, operation: Operation, error: BaseException | None = None) -> None:
        if self.operation is None:
            self.services.operations.end(operation, error)

    async def removed(self, event_name: str, text: str, steps: Iterable[int], **data: Any) -> Removed:
        return Removed(await self.total(event_name, text, steps, **data))

    async def transferred(
        self, event_name: str, text: str, answer: Callable[[int, str | None], T], transfer: MessageTransfer, **data: Any
    ) -> T:
        return answer(await self.total(event_name, text, transfer, **data), transfer.next)

    async def _wait(self, until: float, operation: Operation) -> None:
        while (seconds := until - self.service.clock.monotonic()) > 0 and not operation.is_cancelled:
            due = asyncio.Event()
            self.service.broker.core.scheduler.call_later(min(seconds, LOOK), due.set)
            await due.wait()


async def gathered(
    entries: Iterable[T], limit: int | None = None, wanted: Callable[[T], bool] | None = None
) -> list[T]:
    """The first entries of a list that are wanted, or all; the event loop has its turn in between."""
    gathered: list[T] = []
    for number, entry in enumerate(entries, 1):
        if wanted is None or wanted(entry):
            gathered.append(entry)
            if len(gathered) == limit:
                break
        if number % ENTRIES == 0:
            await asyncio.sleep(0)
    return gathered


def _names(request: Request) -> dict[str, str]:
    try:
        return {key: unquote(text, errors="strict") for key, text in request.path_params.items()}
    except UnicodeDecodeError as error:
        raise InvalidDestination(f"the name in {request.url.path!r} is not UTF-8") from error


class Endpoint(NamedTuple):
    method: str  # GET, POST, PUT or DELETE
    path: str  # below ``/api/v1``; ``{name}`` stands for the name of a destination, percent-encoded
    right: Right  # what the caller must be allowed to do
    summary: str  # what it does, for the document
    handle: Callable[[Call], Any]  # gives the answer, or what to await for it
    answer: Any  # the type of the answer
    query: type[Fields] = Fields  # the type of the parameters after the question mark, if it takes any
    body: type[msgspec.Struct] | None = None  # the type of what it takes, if anything
    status: int = 200  # the HTTP status of success
    packed: bool = False  # whether it takes MessagePack instead of JSON: rows with bodies of any bytes
    takes_message: bool = False  # whether it takes a message's body, which may be as large as ``stomp.max_body``
    dry_run: Callable[[Call], Any] | None = None  # what a dry run tells; None if there is none
    check: Callable[[Call], None] | None = None  # refuses what the right does not tell: it depends on query or body


def listing(
    name: str, path: str, right: Right, summary: str, key: str, kind: type, entries: Callable[[Call], Iterable[Any]],
    query: type[Fields] = Fields,
) -> Endpoint:  # fmt: skip
    """The row of a list that comes whole: all entries ``key`` of a ``kind``."""
    fields: list[tuple[str, Any]] = [(key, GenericAlias(list, (kind,)))]
    answer: Any = msgspec.defstruct(name, fields, frozen=True, namespace={"__doc__": summary}, module=__name__)

    async def handle(call: Call) -> Any:
        return answer(await gathered(entries(call)))

    return Endpoint("GET", path, right, summary, handle, answer, query)


async def read_call(endpoint: Endpoint, request: Request, services: Services, access: Access) -> Call:
    """Read and check a request: first whether the caller may make it."""
    call = Call(services, endpoint, request, access)
    endpoint.right.check(access, call.path)
    limit = services.service.settings.stomp.max_body
    content = await _read_body(request, limit if endpoint.takes_message else min(limit, MAX_BYTES))
    try:
        call.query = msgspec.convert(dict(request.query_params), endpoint.query, strict=False)
        if endpoint.body is None and bytes(content.strip()) not in (b"", b"{}"):
            raise InvalidArgument(f"{endpoint.method} {endpoint.path} takes no body")
        call.body = None if endpoint.body is None else _decode(endpoint, endpoint.body, content)
    except (msgspec.MsgspecError, UnicodeError) as error:  # text that is no UTF-8 comes as the latter
        raise InvalidArgument(f"the request is not valid: {error}") from error
    return call


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


S = TypeVar("S")


class Part(msgspec.Struct, frozen=True):
    """The page of one shard, for the process that joins those of all: with the keys by which it is sorted."""

    page: Any
    keys: list[Any]


class TableQuery(Fields, frozen=True):
    """Which part of a list to show.

    ``after`` is the ``next`` of the page before, in lists that are in the order of their names; ``offset`` leaves out
    so many entries in any order. ``sort`` is a column, with ``-`` in front the largest value first. ``search`` is a
    text in the name, and ``only`` a word that chooses among the entries. An unknown word is an error that names the
    known ones.
    """

    limit: PageLimit = 100
    after: str = ""
    offset: Number = 0
    sort: str = ""
    search: str = ""
    only: str = ""

    def wanted(self) -> Wanted:
        return Wanted(self.limit, self.offset, self.after, self.sort, self.search, self.only)


Sees = Callable[[Access, Any], bool]  # whether a caller may know of an entry


def see_named(kind: DestinationKind) -> Sees:
    return lambda access, source: access.sees(kind, source.destination.name)


async def selected(call: Call, table: Table[S], sees: Sees | None = None) -> Selection[S]:
    """The page of a table that a call asks for; the event loop has its turn in between."""
    if sees is not None and not call.access.may(Permission.MONITOR):
        table = replace(table, is_visible=partial(sees, call.access))
    selection = Selection(table, call.query.wanted())
    for _ in selection:
        await asyncio.sleep(0)
    return selection


def table_listing(
    name: str, path: str, right: Right, summary: str, key: str, kind: type, table: Callable[[Call], Table[Any]],
    status: Callable[[Call, Any], Any], sees: Sees | None = None,
) -> Endpoint:  # fmt: skip
    """The row of a list: a page of entries ``key`` of a ``kind``, ``next`` and ``total``.

    With ``sees`` the list has only entries that the caller may see.
    """
    fields: list[tuple[str, Any]] = [(key, GenericAlias(list, (kind,))), ("next", str | None), ("total", int)]
    answer: Any = msgspec.defstruct(name, fields, frozen=True, namespace={"__doc__": summary}, module=__name__)

    async def handle(call: Call) -> Any:
        selection = await selected(call, table(call), sees)
        entries = await gathered(status(call, entry) for entry in selection.found)
        page = answer(entries, selection.next, selection.total)
        return Part(page, selection.keys) if call.is_part else page

    return Endpoint("GET", path, right, summary, handle, answer, TableQuery)


BASE = "/api/v1"  # where the API begins

_JSON, _PACKED, _FILE = "application/json", "application/msgpack", "application/octet-stream"


class ErrorDetail(msgspec.Struct, frozen=True):
    """An error: a stable code, a text, an advice, and data."""

    code: str
    text: str
    advice: str
    data: dict[str, Any]


class Error(msgspec.Struct, frozen=True):
    """The answer to a request that failed."""

    error: ErrorDetail


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = {type_ for row in endpoints for type_ in (row.answer, row.query, row.body) if type_ is not None} | {Error}
    ordered = sorted(types, key=lambda type_: type_.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in endpoints:
        paths.setdefault(BASE + row.path, {})[row.method.lower()] = _operation(row, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quire", "version": __version__, "description": "The HTTP API of a Quire broker."},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(row: Endpoint, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    query = msgspec.json.schema(row.query)["$defs"][row.query.__name__]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", row.path)
    ] + [
        {"name": name, "in": "query", "required": name in query["required"], "schema": schema}
        for name, schema in query["properties"].items()
    ]
    operation: dict[str, Any] = {
        "summary": row.summary,
        "description": f"Right: {row.right.text}.",
        "parameters": parameters,
        "responses": {
            str(row.status): _success(row, schema_of[row.answer]),
            "default": _content("An error.", schema_of[Error]),
        },
    }
    if row.body is not None:
        operation["requestBody"] = _content("The request.", schema_of[row.body], _PACKED if row.packed else _JSON)
    return operation


def _success(row: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    return _content("Success.", schema, _FILE if row.answer is bytes else _JSON)


def _content(text: str, schema: dict[str, Any], media: str = _JSON) -> dict[str, Any]:
    return {"description": text, "content": {media: {"schema": schema}}}
