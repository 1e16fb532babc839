"""The API for bulk writers: many messages in one commit, at once or staged first (``quire.broker.bulk``)."""

import asyncio
from typing import Annotated

import msgspec

from quire.broker.bulk.row_reader import Columns, RowReader
from quire.broker.bulk.rows import Row, check_room, send, target_of
from quire.broker.routing.route import MAX_PRODUCER_ID
from quire.errors import InvalidArgument
from quire.http.endpoint import Call, Endpoint, Fields

STEP = 500
"""How many rows are understood before the event loop has its turn."""

Producer = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PRODUCER_ID, pattern="^[^\0]*$")]
"""A producer's id: the same over all its lives."""

Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


class WriteQuery(Fields, frozen=True):
    """Who writes, and the number of this write: one that was taken before adds nothing. Both or neither."""

    producer: Producer | None = None
    sequence: Number | None = None


class Written(msgspec.Struct, frozen=True):
    """How many messages were written, durable as the store's ``sync`` says; none of a write that is a duplicate."""

    written: int
    duplicate: bool


class StageQuery(Fields, frozen=True):
    """Whose rows are staged."""

    producer: Producer


class Staged(msgspec.Struct, frozen=True):
    """The id under which rows are staged, and how many there are."""

    stage: str
    rows: int


class StagedCommit(Fields, frozen=True):
    """Which staged rows are written, in order, and the producer's number of this write.

    All else that the producer has staged is thrown away.
    """

    producer: Producer
    sequence: Number
    stages: list[str]


class Discard(Fields, frozen=True):
    """Which staged rows are thrown away; without ``stages`` all of the producer's."""

    producer: Producer
    stages: list[str] | None = None


class Discarded(msgspec.Struct, frozen=True):
    """How many rows were thrown away."""

    rows: int


class StageEntry(msgspec.Struct, frozen=True):
    """Some staged rows. ``decided`` ones are on their way to their destinations."""

    stage: str
    producer: str
    rows: int
    bytes: int
    age_seconds: float
    decided: bool


class StageList(msgspec.Struct, frozen=True):
    """All staged rows, in the order of staging, and what they take in the store."""

    bytes: int
    stages: list[StageEntry]


async def _write(call: Call) -> Written:
    query, broker = call.query, call.service.broker
    if (query.producer is None) != (query.sequence is None):
        raise InvalidArgument("producer and sequence belong together: give both or neither", argument="sequence")
    rows = await _read_rows(call)
    targets = [target_of(broker.routing, row) for row in rows]
    is_new = query.producer is None or broker.producers.take(query.producer, query.sequence)
    if is_new:
        send(broker.core, rows, targets)
    await call.durable()
    return Written(len(rows) if is_new else 0, not is_new)


async def _stage(call: Call) -> Staged:
    rows = await _read_rows(call)
    stage = call.service.broker.staged.stage(call.query.producer, rows)
    await call.durable()
    return Staged(stage, len(rows))


async def _read_rows(call: Call) -> list[Row]:
    """The rows of a request, if there is room for them; the event loop has its turn in between."""
    broker, rows = call.service.broker, list[Row]()
    check_room(broker.core)
    for step in RowReader(broker.core.settings.stomp, broker.destinations, broker.routing, call.body).steps(STEP):
        rows += step
        await asyncio.sleep(0)
    while broker.core.is_full:  # as transports do: others' messages are not kept waiting behind these
        await call.durable()
    check_room(broker.core)
    return rows


async def _commit(call: Call) -> Written:
    staged, commit = call.service.broker.staged, call.body
    written = staged.commit(commit.producer, commit.sequence, commit.stages)
    await call.durable()
    sent = asyncio.Event()
    staged.when_sent(commit.producer, sent.set)
    await sent.wait()
    return Written(written or 0, written is None)


async def _discard(call: Call) -> Discarded:
    rows = call.service.broker.staged.discard(call.body.producer, call.body.stages)
    await call.durable()
    return Discarded(rows)


def _list(call: Call) -> StageList:
    staged, now = call.service.broker.staged, call.service.clock.now_ms()
    return StageList(
        staged.bytes,
        [
            StageEntry(
                id, stage.producer, stage.rows, stage.bytes, (now - stage.staged_at) / 1000, staged.is_decided(id)
            )
            for id, stage in staged.stages.items()
        ],
    )


ENDPOINTS = [
    Endpoint(
        "POST", "/write", "Send many messages in one commit; answers when it is durable.", _write, Written, WriteQuery,
        body=Columns, packed=True,
    ),
    Endpoint(
        "POST", "/write/stages", "Store rows that are hidden until they are committed.", _stage, Staged, StageQuery,
        body=Columns, status=201, packed=True,
    ),
    Endpoint("GET", "/write/stages", "What is staged.", _list, StageList),
    Endpoint(
        "POST", "/write/commit", "Write what is staged, once; answers when all of it is in its destinations.", _commit,
        Written, body=StagedCommit,
    ),
    Endpoint("POST", "/write/discard", "Throw away what is staged.", _discard, Discarded, body=Discard),
]  # fmt: skip
