"""Reading from a broker."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Self, TypeVar
from urllib.parse import urlencode

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from quire.arrow.lanes import Condition, LaneRange, LaneStates, ReadRequest, Trailer
from quire.client.remote import remote_error
from quire.errors import BrokerUnreachable
from quire.spark.online.credentials import NO_CREDENTIALS, Credentials
from quire.spark.online.http import answer, content
from quire.spark.online.patience import Patience
from quire.spark.online.read_on import read_on
from quire.spark.online.shards import joined, own_number, shard_of
from quire.spark.options import Options
from quire.store.base import Link

T = TypeVar("T")


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
        """Set something, over the API. It is tried once."""
        url = f"{self._url}/api/v1{path}"
        with answer("PUT", url, msgspec.json.encode(body), self._timeout, self._credentials) as response:
            response.read()

    def get(self, path: str, kind: type[T]) -> T:
        """Ask for something, over the API. It is tried once."""
        with answer("GET", f"{self._url}/api/v1{path}", b"", self._timeout, self._credentials) as response:
            return content(response, kind)

    def lanes(self, kind: str | None = None) -> LaneStates:
        """The destinations, of one kind or of all, and the states of their lanes, those of a shard at one moment."""
        query = {} if kind is None else {"kind": kind}
        return joined([self._look("/lanes", LaneStates, query, shard) for shard in range(self._shards())])

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Links of a lane (``StoreReader.links``)."""
        query: dict[str, object] = {"lane": own_number(lane), "start": start, "limit": limit}
        return self._look("/links", list[Link], query, shard_of(lane))

    def offset_at(self, lane: int, time_ms: int) -> int:
        """Where a time is in a lane (``quire.store.positions.offset_at``)."""
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
                raise BrokerUnreachable(
                    f"the connection to the bulk server was lost during an answer: {error}"
                ) from error
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
        """A request to the bulk server of a shard (``answer``)."""
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

    def _shards(self) -> int:
        """How many shards the broker's cluster has; 1 without one."""
        return Patience(self._seconds, "readTimeout").tried(lambda: len(self._found().servers))

    def _found(self) -> BulkAccess:
        """Where bulk servers are: the broker is asked, unless that is known."""
        if self._access is None:
            with answer("POST", f"{self._url}/api/v1/bulk", b"", self._timeout, self._credentials) as response:
                self._access = content(response, BulkAccess)
        return self._access


def _task_number() -> int:
    """The number of Spark's task: tasks that run at a time have numbers in a row. Outside of tasks it is 0."""
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()
