"""An endpoint of the API: what it takes, what it answers, and who does the work. OpenAPI is written from these rows."""

import asyncio
from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import Request

from quire.broker.bulk.row_reader import MAX_BYTES
from quire.broker.routing.addresses import Address
from quire.destination import Destination, DestinationKind
from quire.errors import BrokerStopping, IllegalState, InvalidArgument, InvalidDestination, LimitExceeded, QuireError
from quire.http.bulk.launcher import Launcher
from quire.http.cluster_door import ClusterDoor
from quire.http.console_launcher import ConsoleLauncher
from quire.http.operations import Operation, Operations
from quire.http.recent_events import RecentEvents
from quire.http.request_memory import RequestMemory
from quire.http.rights import Right
from quire.http.two_steps import Confirmations
from quire.http.verification.store_verification import StoreVerification
from quire.logs import event
from quire.management.bulk_management import BulkManagement
from quire.management.consumer_group_management import ConsumerGroupManagement
from quire.management.management import Management
from quire.management.message_pages import MAX_PAGE
from quire.management.message_transfer import MessageTransfer
from quire.management.schedule_management import ScheduleManagement
from quire.management.stream_management import StreamManagement
from quire.management.topic_management import TopicManagement
from quire.management.xa_management import XaManagement
from quire.security import Access, Action
from quire.server.cluster.seat import Seat
from quire.server.guard import Guard
from quire.server.service import Service
from quire.units import LARGEST, parse_number

Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""A whole number that a client gives: every one of the API has a range, and this is the widest."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]

LOOK = 1.0
"""So often an operation that waits looks whether it is cancelled, in seconds."""

ENTRIES = 20
"""So many entries of a list are made at once: some milliseconds."""

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


class Doors:
    """What endpoints work with: the broker's process, an operator's doors to it, its bulk server, its cluster."""

    def __init__(self, service: Service, seat: Seat | None = None) -> None:
        self.service = service
        self.cluster = None if seat is None else ClusterDoor(service, seat)
        self.management = Management(service.broker)
        self.topics = TopicManagement(self.management)
        self.streams = StreamManagement(self.management)
        self.groups = ConsumerGroupManagement(self.management)
        self.schedule = ScheduleManagement(self.management)
        self.xa = XaManagement(self.management)
        self.writes = BulkManagement(self.management)
        self.bulk = Launcher(service.store.url, service.settings)
        service.security.watch(self.bulk.rights_changed)
        self.confirmations = Confirmations(service.clock)
        self.operations = Operations(service.broker)
        self.verification = StoreVerification(service.store.url, service.clock)
        self.events = RecentEvents()
        self.console = ConsoleLauncher(service.settings)


class Call:
    """One request, read and checked."""

    def __init__(self, doors: Doors, endpoint: "Endpoint", request: Request, access: Access) -> None:
        self.access = access
        self.guard = Guard(doors.service.gate, access)
        self.service = doors.service
        self._cluster = doors.cluster
        self.management = doors.management
        self.topics = doors.topics
        self.streams = doors.streams
        self.groups = doors.groups
        self.schedule = doors.schedule
        self.xa = doors.xa
        self.writes = doors.writes
        self.bulk = doors.bulk
        self.confirmations = doors.confirmations
        self.operations = doors.operations
        self.verification = doors.verification
        self.events = doors.events
        self.operation: Operation | None = None  # the one in the background that this is
        self.path = _names(request)  # the names in the path, decoded
        self.name = self.path.get("name", "")  # the destination
        kind = _KINDS.get(endpoint.path.split("/")[1], "")
        # The names by what they are, for the log: ``queue``, not ``name``.
        self.subject = {kind if key == "name" else key: name for key, name in self.path.items()}
        self.query: Any = None
        self.body: Any = None
        self.changes: dict[str, Any] = {}  # what the audit log is to have of what was done
        self._request = request

    @property
    def user(self) -> str:
        """Who asks; empty as long as there are no users."""
        return self.access.principal.name

    @property
    def by(self) -> str:
        """Who asks, for the log."""
        name, address = self.access.principal.name, self.access.origin.address
        return f"{name} at {address}" if name else address

    @property
    def target(self) -> str:
        """What the path names, for people."""
        return " ".join([f"{what} {name}" for what, name in self.subject.items()])

    @property
    def host(self) -> str:
        """Under which name or address the caller has reached the broker."""
        return self._request.url.hostname or "127.0.0.1"

    @property
    def cluster(self) -> ClusterDoor:
        """The cluster of this broker.

        Raises:
            IllegalState: it is in none.
        """
        if self._cluster is None:
            raise IllegalState("this broker is in no cluster: `quire cluster start` starts one that is")
        return self._cluster

    @property
    def is_in_cluster(self) -> bool:
        """Whether this broker is in a cluster."""
        return self._cluster is not None

    @property
    def is_part(self) -> bool:
        """Whether another process of the cluster asks, and joins the answer with those of other shards."""
        return bool(self._request.scope.get("is_part"))

    @property
    def is_relayed(self) -> bool:
        """Whether another process of the cluster passes the request on."""
        return "access" in self._request.scope

    def take_memory(self, size: int) -> None:
        """Count what the request makes the broker hold until its answer is read."""
        memory: RequestMemory = self._request.scope["memory"]
        memory.take(size)

    def header(self, name: str) -> str | None:
        """A header of the request."""
        return self._request.headers.get(name)

    @property
    def scheme(self) -> str:
        """With or without TLS: as the caller has reached the broker, so it reaches the bulk server."""
        return self._request.url.scheme

    async def is_gone(self) -> bool:
        """Whether the caller went away meanwhile; no caller waits for what is done in the background."""
        return self.operation is None and await self._request.is_disconnected()

    def audit(self, event_name: str, text: str, **data: Any) -> None:
        """Log what an operator has changed; the text may name what is in the path, and the data: ``{queue}``."""
        known = self.subject | data
        self.changes |= {"event": event_name, **data}
        event(event_name, f"{text.format_map(known)}, by {self.by}", by=self.by, **known)

    def require(self, *actions: Action, kind: DestinationKind, name: str) -> None:
        """Refuse the caller if none of some actions on a destination is allowed."""
        if not any([self.access.allows(action, kind, name) for action in actions]):
            raise self.access.refusal(actions[0], kind, name)

    def creates(self, kind: DestinationKind) -> None:
        """The caller is about to create the destination in the path: one of those that a user may create."""
        self.guard.creates(Address(kind, self.name))

    def check_target(self, destination: Destination) -> None:
        """Refuse to send to a destination that the caller may not write to, or would have to create and may not."""
        self._check_shard(destination)
        self.guard.check_send([Address(destination.kind, destination.name)])

    def check_transfer(self, source: str, target: Destination) -> None:
        """Refuse to bring messages of a queue where the caller may not."""
        self._check_shard(target)
        self.guard.check_transfer(Destination(DestinationKind.QUEUE, source), f"/{target.kind}/{target.name}")

    def _check_shard(self, destination: Destination) -> None:
        """Refuse to send to a destination of another shard: it would be made here, where no client looks for it."""
        if self._cluster is not None and not self._cluster.seat.map.is_own(destination):
            text = f"{destination} lies at another shard of the cluster: messages are moved within a shard only"
            raise IllegalState(text, destination=str(destination))

    async def changed(self, event_name: str, text: str, answer: T, **data: Any) -> T:
        """Log a change, and give its answer when it is durable."""
        self.audit(event_name, text, **data)
        await self.durable()
        return answer

    async def durable(self) -> None:
        """Wait until everything in the open commit is durable; a commit that fails is an error."""
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self.management.confirm(lambda error: None if done.done() else done.set_result(error))
        if error := await done:
            raise error

    async def total(
        self, event_name: str, text: str, steps: Iterable[int], *, rate: float | None = None, **data: Any
    ) -> int:
        """Do step after step, each durable before the next; with a rate until the caller leaves. It logs the result."""
        total, is_whole, began = 0, False, self.service.clock.monotonic()
        operation = self.operation or self.operations.begin(event_name, self.target, self.by, self.user)
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
        """An operation that its caller waits for is over."""
        if self.operation is None:
            self.operations.end(operation, error)

    async def removed(self, event_name: str, text: str, steps: Iterable[int], **data: Any) -> Removed:
        """Remove something step by step, as ``total`` does it."""
        return Removed(await self.total(event_name, text, steps, **data))

    async def transferred(
        self, event_name: str, text: str, answer: Callable[[int, str | None], T], transfer: MessageTransfer, **data: Any
    ) -> T:
        """Do something with many messages step by step, as ``total`` does it; the answer says where to go on."""
        return answer(await self.total(event_name, text, transfer, **data), transfer.next)

    async def gathered(
        self, entries: Iterable[T], limit: int | None = None, wanted: Callable[[T], bool] | None = None
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

    async def done_or_gone(self, begin: Callable[[Callable[[], None]], None]) -> bool:
        """Wait, in this request's own task, for what ``begin`` begins; false if the caller went away before."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as wait:
                begin(lambda: wait.reschedule(loop.time()))
                while (await self._request.receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return True
        return False

    async def _wait(self, until: float, operation: Operation) -> None:
        """Wait for a time on the monotonic clock, or until the operation is cancelled."""
        while (seconds := until - self.service.clock.monotonic()) > 0 and not operation.is_cancelled:
            due = asyncio.Event()
            self.service.broker.core.scheduler.call_later(min(seconds, LOOK), due.set)
            await due.wait()


def _names(request: Request) -> dict[str, str]:
    """The names in the path, decoded."""
    try:
        return {key: unquote(text, errors="strict") for key, text in request.path_params.items()}
    except UnicodeDecodeError as error:
        raise InvalidDestination(f"the name in {request.url.path!r} is not UTF-8") from error


class Endpoint(NamedTuple):
    """A row of the API."""

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
        return answer(await call.gathered(entries(call)))

    return Endpoint("GET", path, right, summary, handle, answer, query)


async def read_call(endpoint: Endpoint, request: Request, doors: Doors, access: Access) -> Call:
    """Read and check a request: first whether the caller may make it."""
    call = Call(doors, endpoint, request, access)
    endpoint.right.check(access, call.path)
    limit = doors.service.settings.stomp.max_body
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
