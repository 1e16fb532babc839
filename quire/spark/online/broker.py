"""Reading from a broker."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Self, TypeVar
from urllib.parse import urlencode

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from quire.arrow.bulk_requests import LaneStates, ReadRequest, Trailer
from quire.arrow.conditions import Condition
from quire.arrow.lane_reader import LaneRange
from quire.client.remote_error import remote_error
from quire.errors import BrokerUnreachable, QuireError
from quire.spark.online.credentials import NO_CREDENTIALS, Credentials
from quire.spark.online.http import answer, content
from quire.spark.online.patience import Patience
from quire.spark.options import Options
from quire.store.base import Link

OFFSET = "offset"

T = TypeVar("T")


class BulkAccess(msgspec.Struct):
    """Where the processes of the bulk server are, and what they want to see."""

    urls: list[str]
    token: str


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

    def lanes(self, kind: str | None = None) -> LaneStates:
        """The destinations, of one kind or of all, and the states of their lanes, all at one moment."""
        return self._look("/lanes", LaneStates, {} if kind is None else {"kind": kind})

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Links of a lane (``StoreReader.links``)."""
        return self._look("/links", list[Link], {"lane": lane, "start": start, "limit": limit})

    def offset_at(self, lane: int, time_ms: int) -> int:
        """Where a time is in a lane (``quire.store.positions.offset_at``)."""
        return self._look("/offset", int, {"lane": lane, "time": time_ms})

    def read(
        self, part: LaneRange, columns: list[str], conditions: tuple[Condition, ...] = (), *, whole: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read a part of a lane (``quire.arrow.lane_reader.read``). After a failure it goes on where it was."""
        wanted = columns if OFFSET in columns else [*columns, OFFSET]
        patience = Patience(self._seconds, "readTimeout")
        while True:
            try:
                for batch in self._batches(ReadRequest(part, wanted, list(conditions), whole)):
                    patience.succeeded()
                    part = part._replace(first=batch.column(OFFSET)[-1].as_py() + 1)
                    yield batch if wanted is columns else batch.select(columns)
                return
            except QuireError as error:
                patience.pause_after(error)

    def _batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        with self._bulk("POST", "/read", {}, msgspec.json.encode(request)) as response:
            try:
                yield from pa.ipc.open_stream(response)
            except pa.ArrowException as error:
                raise BrokerUnreachable(
                    f"the connection to the bulk server was lost during an answer: {error}"
                ) from error
            trailer = content(response, Trailer)
        if trailer.error is not None:
            raise remote_error(trailer.error.code, trailer.error.text, trailer.error.data)

    def _look(self, path: str, kind: type[T], query: dict[str, object]) -> T:
        def look() -> T:
            with self._bulk("GET", path, query) as response:
                return content(response, kind)

        return Patience(self._seconds, "readTimeout").tried(look)

    @contextmanager
    def _bulk(self, method: str, path: str, query: dict[str, object], body: bytes = b"") -> Iterator[HTTPResponse]:
        """A request to the bulk server (``answer``); the broker is asked where it is, unless that is known."""
        if self._access is None:
            with answer("POST", f"{self._url}/api/v1/bulk", b"", self._timeout, self._credentials) as response:
                self._access = content(response, BulkAccess)
        place = self._access.urls[(_task_number() + self._failures) % len(self._access.urls)]
        url = f"{place}{path}?{urlencode({**query, 'token': self._access.token})}"
        try:
            with answer(method, url, body, self._timeout, self._credentials.without_login()) as response:
                yield response
        except BrokerUnreachable:
            self._access = None  # the broker starts again what has ended, but first it is another one's turn
            self._failures += 1
            raise


def _task_number() -> int:
    """The number of Spark's task: tasks that run at a time have numbers in a row. Outside of tasks it is 0."""
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()
