"""Where a read is from: a store, or a running broker, by its HTTP API and the bulk server beside it.

What a broker is shown, and whom a client trusts, is read in the driver, carried to tasks, printed nowhere. A request is
tried again while a reason may pass: the broker is away or restarts, or has no room (``Patience``); a read that breaks
off goes on where it was. The store of a running broker may be read without it, where a database answers many readers at
a time (``BrokerStore``). Lanes of all shards of a cluster have numbers of their own; of a broker by itself they keep
theirs. ``Lanes`` is what planning a read has to know of them, all at one moment.
"""

import base64
import functools
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from quire.arrow.failure import Failure
from quire.arrow.lanes import Condition, LaneRange, LaneStates, ReadRequest, Trailer, read
from quire.client.remote import CA, CERTIFICATE, remote_error
from quire.clock import Clock, SystemClock
from quire.errors import BrokerUnreachable, InvalidArgument, ProtocolViolation, QuireError
from quire.spark.options import Options
from quire.store.base import IDENTITY, LaneState, Link, Store, StoredDestination, StoreReader
from quire.store.maintenance.open_store import open_for_reading
from quire.store.positions import Extent, offset_at


@dataclass(frozen=True, slots=True)
class Credentials:
    """The contents of the files that options or the environment name, so that executors need no such files."""

    authorization: str = field(default="", repr=False)  # the value of the header; empty for no login
    authorities: str = field(default="", repr=False)  # those to trust, PEM; empty for the system's
    certificate: str = field(default="", repr=False)  # the client's own with its key, PEM; empty for none

    @classmethod
    def of(cls, options: Options) -> Self:
        return cls(
            _authorization(options),
            _content(options.tls_ca or os.environ.get(CA), "tlsCa"),
            _content(options.tls_certificate or os.environ.get(CERTIFICATE), "tlsCertificate"),
        )

    def without_login(self) -> "Credentials":
        return replace(self, authorization="")

    def context(self) -> ssl.SSLContext:
        return _context(self.authorities, self.certificate)


NO_CREDENTIALS = Credentials()


def _authorization(options: Options) -> str:
    user, password_file, token_file = options.user, options.password_file, options.bearer_token_file
    if token_file and (user or password_file):
        text = "the options bearerTokenFile and user exclude each other: give one of them"
        raise InvalidArgument(text, options=["bearerTokenFile", "user"])
    if token_file:
        return f"Bearer {_secret(token_file, 'bearerTokenFile')}"
    if not user and not password_file and (token := os.environ.get("QUIRE_TOKEN")):
        return f"Bearer {token}"
    user = user or os.environ.get("QUIRE_USER")
    password_file = password_file or os.environ.get("QUIRE_PASSWORD_FILE")
    if not user and not password_file:
        return ""
    if not user or not password_file:
        missing = "passwordFile" if user else "user"
        raise InvalidArgument(f"user and passwordFile belong together: give {missing} too", option=missing)
    pair = f"{user}:{_secret(password_file, 'passwordFile')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _secret(file: str, option: str) -> str:
    found = _content(file, option).partition("\n")[0].rstrip("\r")
    if not found:
        raise InvalidArgument(f"the file of {option} begins with an empty line: {file}", option=option, file=file)
    return found


def _content(file: str | None, option: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        text = f"the file of {option} cannot be read: {file}: {getattr(error, 'strerror', error)}"
        raise InvalidArgument(text, option=option, file=file) from error


@functools.cache
def _context(authorities: str, certificate: str) -> ssl.SSLContext:
    """TLS 1.2 or newer; the name of the broker must be in its certificate."""
    try:
        context = ssl.create_default_context(cadata=authorities or None)
        if certificate:
            # OpenSSL reads it from a file only.
            with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
                file.write(certificate)
                file.flush()
                context.load_cert_chain(file.name)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        text = f"tlsCa or tlsCertificate cannot be used: {error}"
        raise InvalidArgument(text, options=["tlsCa", "tlsCertificate"]) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


T = TypeVar("T")


@contextmanager
def answer(
    method: str, url: str, body: bytes, timeout: float, credentials: Credentials = NO_CREDENTIALS
) -> Iterator[HTTPResponse]:
    """Send a request; yields its answer or raises its error. ``timeout`` is for each part of the answer."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(parts.netloc, timeout=timeout, context=credentials.context())
    else:
        connection = HTTPConnection(parts.netloc, timeout=timeout)
    response = None
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = {"content-type": "application/json"}
        if credentials.authorization:
            headers["authorization"] = credentials.authorization
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise _error(response)
        yield response
    except (OSError, HTTPException) as error:
        place = f"{parts.scheme}://{parts.netloc}"
        lost = f"the connection to {place} was lost during an answer"
        happened = f"no broker answers at {place}" if response is None else lost
        raise BrokerUnreachable(f"{happened}: {str(error) or type(error).__name__}", url=place) from error
    finally:
        connection.close()


def content(response: HTTPResponse, kind: type[T]) -> T:
    """An answer's content, out of JSON; what is something else comes from a proxy whose broker is away, say."""
    try:
        return msgspec.json.decode(response.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise BrokerUnreachable(f"the answer is incomplete, or not from a Quire broker: {error}") from error


def _error(response: HTTPResponse) -> Exception:
    try:
        detail = msgspec.json.decode(response.read(), type=dict[str, Failure])["error"]
    except (msgspec.MsgspecError, KeyError):
        return BrokerUnreachable(f"the server is not a Quire broker: it answered {response.status} {response.reason}")
    if response.status == 403 and detail.code == ProtocolViolation.code:  # another bulk server listens there now
        return BrokerUnreachable(detail.text)
    return remote_error(detail.code, detail.text, detail.data)


BACK_OFF = 0.1  # how long the first pause between tries is, in seconds
LONGEST_BACK_OFF = 2.0  # and those from the sixth on


class Patience:
    """The patience with one thing that is tried until it succeeds, or has failed for as long as an option says."""

    def __init__(self, seconds: float, option: str, clock: Clock | None = None) -> None:
        self._seconds = seconds
        self._option = option
        self._clock = clock or SystemClock()
        self._failures = 0
        self._failing_since = 0.0
        self._pause = BACK_OFF

    def tried(self, attempt: Callable[[], T]) -> T:
        while True:
            try:
                return attempt()
            except QuireError as error:
                self.pause_after(error)

    def succeeded(self) -> None:
        """A part of it is done: what fails from now on may do so for as long again."""
        self._failures = 0

    def pause_after(self, error: QuireError) -> None:
        """Wait a while, or raise the error if it is not retriable or went on for too long."""
        if not error.entry.retriable:
            raise error
        now = self._clock.monotonic()
        if not self._failures:
            self._failing_since, self._pause = now, BACK_OFF
        self._failures += 1
        if now + self._pause > self._failing_since + self._seconds:
            text = f"{error}, after {self._failures} tries in {self._seconds:g} s ({self._option})"
            raise type(error)(text, **error.data) from error
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_BACK_OFF)


OFFSET = "offset"


def read_on(
    batches: Callable[[LaneRange, list[str]], Iterator[pa.RecordBatch]], part: LaneRange, columns: list[str],
    patience: Patience,
) -> Generator[pa.RecordBatch, None, None]:  # fmt: skip
    wanted = columns if OFFSET in columns else [*columns, OFFSET]
    while True:
        try:
            for batch in batches(part, wanted):
                patience.succeeded()
                part = part._replace(first=batch.column(OFFSET)[-1].as_py() + 1)
                yield batch if wanted is columns else batch.select(columns)
            return
        except QuireError as error:
            patience.pause_after(error)


LANES = 1 << 32  # how many lanes a shard may have, in the numbers here: stores number theirs with 32 bits


def shard_of(lane: int) -> int:
    return lane // LANES


def own_number(lane: int) -> int:
    return lane % LANES


def joined(parts: Sequence[LaneStates]) -> LaneStates:
    """The destinations of all shards, given in order. One with parts at several shards has the lanes of all of them."""
    found: dict[tuple[str, str], StoredDestination] = {}
    states: dict[int, LaneState] = {}
    for shard, part in enumerate(parts):
        first = shard * LANES
        states |= {first + lane: state for lane, state in part.states.items()}
        for stored in part.destinations:
            lanes = tuple([first + lane for lane in stored.lanes])
            known = found.get((stored.kind, stored.name))
            if known is None:
                found[stored.kind, stored.name] = stored._replace(id=len(found) + 1, lanes=lanes)
            else:
                settings = {name: value for name, value in known.settings.items() if name != IDENTITY}
                found[stored.kind, stored.name] = known._replace(lanes=known.lanes + lanes, settings=settings)
    return LaneStates(list(found.values()), states)


class BulkServer(msgspec.Struct):
    """Where the processes of a bulk server are, and what they want to see."""

    urls: list[str]
    token: str


class BulkAccess(msgspec.Struct):
    """The bulk server of a broker, or those of all shards of a cluster, in order."""

    servers: list[BulkServer]


class Broker:
    """A broker's HTTP API and bulk server; ``patience`` limits retries, ``timeout`` each part of an answer, in s."""

    def __init__(self, url: str, patience: float, timeout: float, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._url = url
        self._credentials = credentials
        self._seconds = patience
        self._timeout = timeout
        self._access: BulkAccess | None = None
        self._failures = 0  # how often a process of the bulk server did not answer

    @classmethod
    def of(cls, options: Options) -> Self:
        assert options.broker_url is not None
        return cls(options.broker_url, options.read_timeout, options.fetch_timeout, Credentials.of(options))

    def put(self, path: str, body: object) -> None:
        url = f"{self._url}/api/v1{path}"
        with answer("PUT", url, msgspec.json.encode(body), self._timeout, self._credentials) as response:
            response.read()

    def get(self, path: str, kind: type[T]) -> T:
        with answer("GET", f"{self._url}/api/v1{path}", b"", self._timeout, self._credentials) as response:
            return content(response, kind)

    def lanes(self, kind: str | None = None) -> LaneStates:
        query = {} if kind is None else {"kind": kind}
        shards = Patience(self._seconds, "readTimeout").tried(lambda: len(self._found().servers))
        return joined([self._look("/lanes", LaneStates, query, shard) for shard in range(shards)])

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        query: dict[str, object] = {"lane": own_number(lane), "start": start, "limit": limit}
        return self._look("/links", list[Link], query, shard_of(lane))

    def offset_at(self, lane: int, time_ms: int) -> int:
        return self._look("/offset", int, {"lane": own_number(lane), "time": time_ms}, shard_of(lane))

    def read(
        self, part: LaneRange, columns: list[str], conditions: tuple[Condition, ...] = (), *, whole: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read a part of a lane (``quire.arrow.lanes.read``). After a failure it goes on where it was."""

        def batches(rest: LaneRange, wanted: list[str]) -> Iterator[pa.RecordBatch]:
            asked = rest._replace(lane=own_number(rest.lane))
            return self._batches(ReadRequest(asked, wanted, list(conditions), whole), shard_of(rest.lane))

        return read_on(batches, part, columns, Patience(self._seconds, "readTimeout"))

    def _batches(self, request: ReadRequest, shard: int) -> Iterator[pa.RecordBatch]:
        with self._bulk("POST", "/read", {}, shard, msgspec.json.encode(request)) as response:
            try:
                yield from pa.ipc.open_stream(response)
            except pa.ArrowException as error:
                text = f"the connection to the bulk server was lost during an answer: {error}"
                raise BrokerUnreachable(text) from error
            trailer = content(response, Trailer)
        if trailer.error is not None:
            raise remote_error(trailer.error.code, trailer.error.text, trailer.error.data)

    def _look(self, path: str, kind: type[T], query: Mapping[str, object], shard: int) -> T:
        def look() -> T:
            with self._bulk("GET", path, query, shard) as response:
                return content(response, kind)

        return Patience(self._seconds, "readTimeout").tried(look)

    @contextmanager
    def _bulk(
        self, method: str, path: str, query: Mapping[str, object], shard: int, body: bytes = b""
    ) -> Iterator[HTTPResponse]:
        server = self._found().servers[shard]
        place = server.urls[(_task_number() + self._failures) % len(server.urls)]
        url = f"{place}{path}?{urlencode({**query, 'token': server.token})}"
        try:
            with answer(method, url, body, self._timeout, self._credentials.without_login()) as response:
                yield response
        except BrokerUnreachable:
            self._access = None  # the broker starts again what has ended, but first it is another one's turn
            self._failures += 1
            raise

    def _found(self) -> BulkAccess:
        if self._access is None:
            with answer("POST", f"{self._url}/api/v1/bulk", b"", self._timeout, self._credentials) as response:
                self._access = content(response, BulkAccess)
        return self._access


def _task_number() -> int:
    """The number of Spark's task: tasks that run at a time have numbers in a row. Outside of tasks it is 0."""
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()


class BrokerStore:
    """A store on which a broker runs; ``patience`` limits retries, in s. It stays open where reads are planned."""

    def __init__(self, url: str, patience: float) -> None:
        self._url = url
        self._seconds = patience
        self._open = ExitStack()
        self._store: Store | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._url, self._seconds)

    def lanes(self, kind: str | None = None) -> LaneStates:
        return self._look(lambda reader: LaneStates.of(reader, kind))

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        return self._look(lambda reader: reader.links(lane, start, limit))

    def offset_at(self, lane: int, time_ms: int) -> int:
        return self._look(lambda reader: offset_at(reader, lane, time_ms))

    def read(
        self, part: LaneRange, columns: list[str], conditions: tuple[Condition, ...] = (), *, whole: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read a part of a lane (``quire.arrow.lanes.read``). After a failure it goes on where it was."""

        def batches(rest: LaneRange, wanted: list[str]) -> Iterator[pa.RecordBatch]:
            with open_for_reading(self._url) as (store, _):
                yield from read(store, rest, wanted, conditions, whole=whole)

        return read_on(batches, part, columns, Patience(self._seconds, "readTimeout"))

    def _look(self, ask: Callable[[StoreReader], T]) -> T:
        def look() -> T:
            try:
                if self._store is None:
                    self._store = self._open.enter_context(open_for_reading(self._url)).store
                with self._store.snapshot() as reader:
                    return ask(reader)
            except QuireError:
                self._store = None
                self._open.close()
                raise

        return Patience(self._seconds, "readTimeout").tried(look)


@dataclass(frozen=True)
class Lanes:
    """Lanes and their states: of a store's snapshot, or of a broker, which looks up links and times on demand."""

    destinations: list[StoredDestination]
    lane_state: Callable[[int], LaneState]
    links: Callable[[int, int, int], list[Link]]
    offset_at: Callable[[int, int], int]

    @classmethod
    def of_store(cls, reader: StoreReader) -> Self:
        return cls(reader.destinations(), reader.lane_state, reader.links, partial(offset_at, reader))

    @classmethod
    def of_broker(cls, broker: Broker | BrokerStore, states: LaneStates) -> Self:
        empty = LaneState()
        return cls(states.destinations, lambda lane: states.states.get(lane, empty), broker.links, broker.offset_at)

    def extent(self, lane: int) -> Extent:
        return Extent.of(self.lane_state(lane))


Read = Callable[..., Iterator[pa.RecordBatch]]  # reads a part of a lane: ``quire.arrow.lanes.read`` of one store


class Source:
    """The store, on which a broker may run, or the broker that the options name."""

    def __init__(self, options: Options) -> None:
        self._store_url = options.store_url or ""
        self._broker = Broker.of(options) if options.broker_url else None

    @contextmanager
    def lanes(self) -> Iterator[Lanes]:
        if self._broker:
            yield Lanes.of_broker(self._broker, self._broker.lanes())
        else:
            with open_for_reading(self._store_url) as (store, _), store.snapshot() as reader:
                yield Lanes.of_store(reader)

    @contextmanager
    def reader(self) -> Iterator[Read]:
        if self._broker:
            yield self._broker.read
        else:
            with open_for_reading(self._store_url) as (store, _):
                yield partial(read, store)
