"""The API for bulk: many messages in one commit, the producers that number their sends, the way to the bulk server."""

import asyncio
from typing import Annotated

import msgspec

from quire.broker.admission import check_room
from quire.broker.bulk.row_reader import Columns, RowReader
from quire.broker.bulk.rows import Row, send, target_of
from quire.broker.routing.route import MAX_PRODUCER_ID
from quire.destination import written
from quire.errors import InvalidArgument
from quire.http.endpoint import MONITOR, OPERATE, USER, Call, Endpoint, Fields, rows_of, table_listing
from quire.management.tables import Table
from quire.resources import ProducerStatus, Status
from quire.settings import split_address

Producer = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PRODUCER_ID, pattern="^[^\0]*$")]
"""A producer's id: the same over all its lives."""

Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


STEP = 500  # how many rows are read in one step
CHECKED = 200  # of so many destinations at once the broker looks whether the caller may write to them

ROWS = rows_of("write on the destinations of the rows; to commit or discard them, the id of their producer")


class WriteQuery(Fields, frozen=True):
    """The producer and the number of its write: an accepted number writes nothing again. Both or neither."""

    producer: Producer | None = None
    sequence: Number | None = None


class Written(msgspec.Struct, frozen=True):
    """How many messages were written, durable as the store's ``sync`` says; none of a write that is a duplicate."""

    written: int
    duplicate: bool


class StageQuery(Fields, frozen=True):
    """The producer whose rows are staged."""

    producer: Producer


class Staged(msgspec.Struct, frozen=True):
    """The id under which rows are staged, and how many there are."""

    stage: str
    rows: int


class StageEntry(Status, frozen=True):
    """Some staged rows. ``decided`` ones are committed and on their way to their destinations."""

    stage: str
    producer: str
    rows: int
    bytes: int
    age_seconds: float
    decided: bool


class StageList(Status, frozen=True):
    """All staged rows, in the order of staging, and their bytes in the store."""

    bytes: int
    stages: list[StageEntry]


class StagedCommit(Fields, frozen=True):
    """The stages to commit, in order, and the producer's number of this write.

    All other rows that the producer has staged are discarded.
    """

    producer: Producer
    sequence: Number
    stages: list[str]


class Discard(Fields, frozen=True):
    """The stages to discard; without ``stages`` all of the producer's."""

    producer: Producer
    stages: list[str] | None = None


class Discarded(msgspec.Struct, frozen=True):
    """How many rows were discarded."""

    rows: int


async def _write(call: Call) -> Written:
    """A numbered write that the broker has accepted before writes nothing."""
    query, broker = call.query, call.broker
    if (query.producer is None) != (query.sequence is None):
        raise InvalidArgument("producer and sequence belong together: give both or neither", argument="sequence")
    rows = await _read_rows(call)
    check_room(broker.core, stored=True)
    targets = [target_of(broker.routing, row) for row in rows]
    is_new = query.producer is None or broker.producers.take(query.producer, query.sequence)
    if is_new:
        send(broker.core, rows, targets)
    await call.durable()
    return Written(len(rows) if is_new else 0, not is_new)


async def _stage(call: Call) -> Staged:
    rows = await _read_rows(call)
    stage = call.broker.staged.stage(call.query.producer, rows)
    await call.durable()
    return Staged(stage, len(rows))


async def _read_rows(call: Call) -> list[Row]:
    """The rows of a request, whose destinations are created; the event loop has its turn in between."""
    columns: Columns = call.body
    broker = call.broker
    named = [columns.destination] if isinstance(columns.destination, str) else columns.destination
    for number, destination in enumerate(dict.fromkeys(named), 1):
        call.check_target(written(destination))
        if number % CHECKED == 0:
            await asyncio.sleep(0)
    check_room(broker.core, stored=True)
    limits, rows = broker.core.settings.stomp, list[Row]()
    for step in RowReader(limits, broker.destinations, broker.routing, columns, call.guard.sender).steps(STEP):
        rows += step
        await asyncio.sleep(0)
    while broker.core.is_full:  # the messages of others do not wait behind these
        await call.durable()
    return rows


def _stages(call: Call) -> StageList:
    staged, now = call.broker.staged, call.service.clock.now_ms()
    entries = [
        StageEntry(id, each.producer, each.rows, each.bytes, max(now - each.staged_at, 0) / 1000, staged.is_decided(id))
        for id, each in staged.stages.items()
    ]
    return StageList(staged.bytes, entries)


async def _commit(call: Call) -> Written:
    commit, staged = call.body, call.broker.staged
    written = staged.commit(commit.producer, commit.sequence, commit.stages)
    await call.durable()
    sent = asyncio.Event()
    staged.when_sent(commit.producer, sent.set)
    await sent.wait()
    return Written(written or 0, written is None)


async def _discard(call: Call) -> Discarded:
    rows = call.broker.staged.discard(call.body.producer, call.body.stages)
    await call.durable()
    return Discarded(rows)


ENDPOINTS = [
    Endpoint(
        "POST", "/write", ROWS, "Write many messages in one commit. The answer comes when it is durable.", _write,
        Written, WriteQuery, body=Columns, packed=True,
    ),
    Endpoint(
        "POST", "/write/stages", ROWS, "Stage rows: store them, invisible until their commit.", _stage, Staged,
        StageQuery, body=Columns, status=201, packed=True,
    ),
    Endpoint(
        "GET", "/write/stages", MONITOR, "List the staged rows.", _stages, StageList,
    ),
    Endpoint(
        "POST", "/write/commit", ROWS,
        "Commit staged rows, once. The answer comes when they are in their destinations.", _commit, Written,
        body=StagedCommit,
    ),
    Endpoint("POST", "/write/discard", ROWS, "Discard staged rows.", _discard, Discarded, body=Discard),
]  # fmt: skip


class Forgotten(msgspec.Struct, frozen=True):
    """The producer that the broker forgot."""

    forgotten: str


def producers(call: Call) -> Table[str]:
    known = call.broker.producers
    return Table(known.ids, str, {"last_sent": known.last_sent}, {}, is_ordered=True)


async def _forget(call: Call) -> Forgotten:
    id = call.path["producer"]
    call.broker.producers.forget(id)
    return await call.changed("producer.forgotten", "the producer {producer} was forgotten", Forgotten(id))


ENDPOINTS += [
    table_listing(
        "ProducerList", "/producers", MONITOR, "List the producers that number their sends.", "producers",
        ProducerStatus, producers, lambda call, id: call.broker.producers.status(id),
    ),
    Endpoint(
        "DELETE", "/producers/{producer}", OPERATE,
        "Forget a producer: the broker then accepts its repeated messages as new.", _forget, Forgotten,
    ),
]  # fmt: skip


_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class BulkServer(msgspec.Struct, frozen=True):
    """The addresses of the processes of a bulk server, any of which answers, and the token for URLs: ``?token=...``.

    With the token one reads the destinations that its user may read.
    """

    urls: list[str]
    token: str


class BulkAccess(msgspec.Struct, frozen=True):
    """The bulk server of a broker; in a cluster those of all shards, in order, or of the one that was named."""

    servers: list[BulkServer]


async def _open(call: Call) -> BulkAccess:
    await call.services.bulk.start()
    urls = [_url(call, address) for address in call.services.bulk.addresses]
    return BulkAccess([BulkServer(urls, call.services.bulk.readers.token_of(call.access))])


def _url(call: Call, address: str) -> str:
    """The URL of a process, as the caller can reach it: beside the API under the name that certificates have."""
    host, port = split_address(address)
    own = split_address(call.service.settings.http.address)[0]
    if "access" in call.request.scope:  # by another process of the cluster, which the caller has reached
        scheme = "https" if call.service.settings.tls.certificate else "http"
        host = own if host in _ANYWHERE else host
    else:
        scheme = call.request.url.scheme
        host = (call.request.url.hostname or "127.0.0.1") if host in (*_ANYWHERE, own) else host
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


ENDPOINTS += [
    Endpoint(
        "POST", "/bulk", USER, "Start the bulk server if it does not run, and get its addresses.", _open, BulkAccess,
    ),
]  # fmt: skip
