"""The API's producers that number their sends: list, forget."""

import msgspec

from quire.broker.producer_ids import ProducerStatus
from quire.http.endpoint import Call, Endpoint, ListQuery
from quire.http.rights import MONITOR, OPERATE


class ProducerPage(msgspec.Struct, frozen=True):
    """Producers that number their sends, by id; ``next`` is what to give as ``after`` for those that follow."""

    producers: list[ProducerStatus]
    next: str | None


class Forgotten(msgspec.Struct, frozen=True):
    """The producer that the broker forgot."""

    forgotten: str


def _list(call: Call) -> ProducerPage:
    limit = call.query.limit
    found = call.writes.producers(call.query.after, limit + 1)
    return ProducerPage(found[:limit], found[limit - 1].id if len(found) > limit else None)


async def _forget(call: Call) -> Forgotten:
    id = call.path["producer"]
    call.writes.forget_producer(id)
    return await call.changed("producer.forgotten", "the producer {producer} was forgotten", Forgotten(id))


ENDPOINTS = [
    Endpoint(
        "GET", "/producers", MONITOR, "List the producers that number their sends.", _list, ProducerPage, ListQuery
    ),
    Endpoint(
        "DELETE",
        "/producers/{producer}",
        OPERATE,
        "Forget a producer: the broker then accepts its repeated messages as new.",
        _forget,
        Forgotten,
    ),
]
