"""The API's single messages: look at one, fetch its body, delete it."""

import asyncio

from quire.errors import InvalidArgument
from quire.http.answers import Answer, attachment
from quire.http.durables import BROWSE, require_topic
from quire.http.endpoint import Call, Endpoint, Removed
from quire.http.rights import MANAGE_QUEUE, READ_QUEUE, READ_STREAM
from quire.management.message_transfer import Choice
from quire.management.message_view import LARGE, Browsable, LedgerEntry, Located, MessageView
from quire.message import Message
from quire.security import Action
from quire.units import parse_number


def number_in_path(call: Call, name: str) -> int:
    """A number in the path."""
    number = parse_number(call.path[name])
    if number is None:
        raise InvalidArgument(f"{name} is {call.path[name][:60]!r}: write its number", argument=name)
    return number


def _source(call: Call) -> Browsable:
    if "client" in call.path:
        return call.topics.existing_durable(call.path["client"], call.name)
    return call.management.existing(call.name)


def _located(call: Call) -> Located:
    viewer = call.management.viewer
    if "offset" in call.path:
        stream = call.streams.existing(call.name)
        return viewer.locate_in_stream(stream, number_in_path(call, "partition"), number_in_path(call, "offset"))
    return viewer.locate(_source(call), number_in_path(call, "sequence"))


async def _read(call: Call, located: Located) -> Message:
    """Read a message; a large one on another thread, so that others are served meanwhile."""
    call.take_memory(located.size)
    if located.size > LARGE and located.is_apart:
        return await asyncio.to_thread(located.load)
    return located.load()


async def _view(call: Call) -> MessageView:
    located = _located(call)
    message = await _read(call, located)
    ledger: list[LedgerEntry] | None = None
    search = call.management.viewer.ledger(located.source, message)
    if search is not None:
        for _ in search:
            await asyncio.sleep(0)
        ledger = search.found
    return call.management.viewer.view(located, message, ledger)


async def _body(call: Call) -> Answer:
    located = _located(call)
    return attachment((await _read(call, located)).body, f"{located.sequence}.bin")


async def _delete(call: Call) -> Removed:
    sequence = number_in_path(call, "sequence")
    transfer = call.management.purge(call.name, Choice(ids=[str(sequence)]))
    return await call.removed("messages.purged", "message {sequence} of queue {queue} was removed", transfer)


_ONE = "/queues/{name}/messages/{sequence}"
_OF_DURABLE = "/durables/{client}/{name}/messages/{sequence}"
_OF_STREAM = "/streams/{name}/partitions/{partition}/messages/{offset}"


def _may_read(call: Call) -> None:
    require_topic(call, Action.READ)


ENDPOINTS = [
    Endpoint(
        "GET", _ONE, READ_QUEUE, "Get a message: headers, the first 64 KiB of its body, deliveries.", _view,
        MessageView,
    ),
    Endpoint("GET", _ONE + "/body", READ_QUEUE, "Get the whole body of a message as a file.", _body, bytes),
    Endpoint("DELETE", _ONE, MANAGE_QUEUE, "Remove a message that is not in flight.", _delete, Removed),
    Endpoint(
        "GET", _OF_DURABLE, BROWSE, "Get a message of a durable subscription.", _view, MessageView, check=_may_read
    ),
    Endpoint(
        "GET", _OF_DURABLE + "/body", BROWSE, "Get the whole body of a message as a file.", _body, bytes,
        check=_may_read,
    ),
    Endpoint("GET", _OF_STREAM, READ_STREAM, "Get a message of a stream.", _view, MessageView),
    Endpoint("GET", _OF_STREAM + "/body", READ_STREAM, "Get the whole body of a message as a file.", _body, bytes),
]  # fmt: skip
