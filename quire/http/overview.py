"""The API's overview: the broker at a glance, and its last minutes and hours."""

import asyncio
from typing import Annotated

import msgspec

from quire import __version__
from quire.destination import DestinationKind
from quire.http.broker import state
from quire.http.endpoint import Call, Endpoint, Fields
from quire.http.rights import MONITOR, USER
from quire.management.history_reader import HistoryPoints
from quire.management.overview import Overview, Process
from quire.management.topology.clients import Client
from quire.management.topology.graph import Topology
from quire.security import Permission


class HistoryQuery(Fields, frozen=True):
    """Whose history, and how far back.

    ``of`` is ``broker``, ``queue``, ``topic``, ``stream``, ``durable`` or ``group``. ``name`` is the name of a
    destination, ``CLIENT/NAME`` or ``STREAM/GROUP``. ``span`` is ``5m``, ``1h`` or ``24h``.
    """

    of: str = "broker"
    name: str = ""
    span: str = "5m"


class TopologyQuery(Fields, frozen=True):
    """Which part of the picture: around a destination (``queue://orders``, or only its name), or the busiest ones.

    ``limit`` is how many destinations are shown, and how many clients on each side.
    """

    focus: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 40


def _overview(call: Call) -> Overview:
    service = call.service
    uptime = service.uptime
    process = Process(service.settings.broker.name, __version__, state(service), uptime, len(service.connections))
    return call.management.overview.read(process)


def _history(call: Call) -> HistoryPoints:
    return call.management.history.read(call.query.of, call.query.name, call.query.span)


async def _topology(call: Call) -> Topology:
    sessions = list(call.service.connections.values())
    clients = [Client(session, session.client_id, session.sends_to) for session in sessions]
    reader = call.management.topology(clients, call.query.focus, call.query.limit)
    for _ in reader:
        await asyncio.sleep(0)
    return reader.result


SEE = USER._replace(text="monitor; of a destination or a group also read, write or manage on it")


def _may_see(call: Call) -> None:
    of, name = call.query.of, call.query.name
    kind, name = (DestinationKind.STREAM, name.rpartition("/")[0]) if of == "group" else (of, name)
    if kind not in list(DestinationKind) or not call.access.sees(DestinationKind(kind), name):
        call.access.require(Permission.MONITOR)


ENDPOINTS = [
    Endpoint(
        "GET", "/overview", MONITOR, "Get the state at a glance: rates, limits, what needs attention.", _overview,
        Overview,
    ),
    Endpoint(
        "GET", "/history", SEE, "Get the rates, depth and ages of the last minutes or hours.", _history, HistoryPoints,
        HistoryQuery, check=_may_see,
    ),
    Endpoint(
        "GET", "/topology", MONITOR,
        "Get the picture of producers, destinations and consumers, with rates and what waits.", _topology, Topology,
        TopologyQuery,
    ),
]  # fmt: skip
