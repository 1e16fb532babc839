"""The API's producers that number their sends: list, forget."""

import msgspec

from quire.broker.producer_ids import ProducerStatus
from quire.http.endpoint import Call, Endpoint
from quire.http.listing import table_listing
from quire.http.rights import MONITOR, OPERATE


class Forgotten(msgspec.Struct, frozen=True):
    """The producer that the broker forgot."""

    forgotten: str


async def _forget(call: Call) -> Forgotten:
    id = call.path["producer"]
    call.writes.forget_producer(id)
    return await call.changed("producer.forgotten", "the producer {producer} was forgotten", Forgotten(id))


ENDPOINTS = [
    table_listing(
        "ProducerList",
        "/producers",
        MONITOR,
        "List the producers that number their sends.",
        "producers",
        ProducerStatus,
        lambda call: call.writes.producers(),
        lambda call, id: call.writes.producer(id),
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
