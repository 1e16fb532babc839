"""The API's broker: is it well, what does it use; its last hours, settings, policies, log and store."""

import asyncio
from functools import cache, partial
from typing import Annotated, Any

import msgspec

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.core import HoldCause
from quire.clock import told
from quire.destination import DestinationKind, checked
from quire.errors import InvalidArgument
from quire.http.actions import Started
from quire.http.endpoint import FREE, MONITOR, OPERATE, USER, Call, Endpoint, Fields, Number, PageLimit
from quire.http.services import LoggedEvent
from quire.http.verification import Verification
from quire.management.blocked import held_producers
from quire.management.overview import DiskSpace, HistoryPoints, Overview, Use, disk_space, history, overview
from quire.management.topology import Client, Topology, TopologyReader
from quire.resources import BrokerStatus, DiskUse, MemoryUse, SpoolUse, State, Status, StoreUse, doc
from quire.security import Permission
from quire.server.service import Service
from quire.settings import KEYS
from quire.settings.policy import PolicyEntry
from quire.store.base import newest_format
from quire.store.urls import shown


class Health(msgspec.Struct, frozen=True):
    """Whether the broker accepts and delivers messages."""

    state: State


def state(service: Service) -> State:
    if service.is_stopping:
        return "stopping"
    if service.lease is not None and service.lease.is_suspended:
        return "suspended"
    return "running" if service.broker.failure.error is None else "store-failed"


def _disk(broker: Broker, cause: HoldCause) -> DiskUse | None:
    disk = broker.disks.disks.get(cause)
    return None if disk is None else DiskUse(disk.room, disk.limit, disk.reserved)


def broker_status(service: Service) -> BrokerStatus:
    broker, settings = service.broker, service.settings
    memory, temporaries = broker.core.memory, broker.routing.temporaries
    error, step = broker.failure.error, broker.core.wall.latest_step()
    return BrokerStatus(
        name=settings.broker.name, version=__version__, state=state(service),
        uptime_seconds=service.uptime,
        stomp=service.stomp_address, openwire=service.openwire_address, http=service.http_address,
        connections=len(service.connections),
        queues=len(broker.queues), messages=sum(queue.depth for queue in broker.queues.values()),
        topics=len(broker.destinations.topics), durables=len(broker.durables),
        temporaries=len(temporaries.queues) + len(temporaries.topics), scheduled=broker.schedule.depth,
        prepared=len(broker.xa.recover()),
        memory=MemoryUse(memory.used, memory.peak, memory.limit),
        store=StoreUse(shown(service.store.url), broker.core.stored_bytes, settings.store.limit, settings.store.sync,
            _disk(broker, HoldCause.STORE_DISK)),
        spool=SpoolUse(broker.core.spool.used, broker.core.spool.limit, _disk(broker, HoldCause.SPOOL_DISK)),
        producers_held=held_producers(broker), store_error=None if error is None else str(error),
        store_error_age_seconds=broker.failure.age,
        clock_set=None if step is None else told(step),
    )  # fmt: skip


def _health(call: Call) -> Health:
    if (error := call.broker.failure.error) is not None:
        raise error
    return Health(state(call.service))


ENDPOINTS = [
    Endpoint("GET", "/health", FREE, "Get the health; an error if the store accepts no writes.", _health, Health),
    Endpoint(
        "GET", "/broker", MONITOR, "Get the state, memory, store, spool and connections of the broker.",
        lambda call: broker_status(call.service), BrokerStatus,
    ),
]  # fmt: skip


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
    return overview(
        call.broker, call.admin.queues.sampler, name=service.settings.broker.name, version=__version__,
        state=state(service), uptime_seconds=service.uptime, connections=len(service.connections),
    )  # fmt: skip


def _history(call: Call) -> HistoryPoints:
    return history(call.broker, call.admin.queues.sampler, call.query.of, call.query.name, call.query.span)


async def _topology(call: Call) -> Topology:
    sessions = list(call.service.connections.values())
    clients = [Client(session.name, session.client_id, session.sends_to) for session in sessions]
    reader = TopologyReader(call.broker, call.admin.queues.sampler, clients, call.query.focus, call.query.limit)
    for _ in reader:
        await asyncio.sleep(0)
    return reader.result


SEE = USER._replace(text="monitor; of a destination or a group also read, write or manage on it")


def _may_see(call: Call) -> None:
    of, name = call.query.of, call.query.name
    kind, name = (DestinationKind.STREAM, name.rpartition("/")[0]) if of == "group" else (of, name)
    if kind not in list(DestinationKind) or not call.access.sees(DestinationKind(kind), name):
        call.access.require(Permission.MONITOR)


ENDPOINTS += [
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


_PREFIX = "policy."
_SECRET = ("password", "passcode", "secret")  # a setting with one of these in its name is never told


class PolicyValue(Status, frozen=True):
    """A key of a policy."""

    key: Annotated[str, doc("The key, as in ``[policy]`` of the settings file.")]
    value: Annotated[Any, doc("Its value.")]
    origin: Annotated[str, doc("Where the value comes from: default, a file, the environment, a flag, an entry.")]
    text: Annotated[str, doc("What the key means.")]


class AppliedEntry(Status, frozen=True):
    """An entry of ``[[policies]]`` that matches a destination."""

    destination: Annotated[str, doc("Its pattern.")]
    origin: Annotated[str, doc("Where it is written.")]
    applies: Annotated[list[str], doc("The keys whose value comes from it.")]
    overridden: Annotated[list[str], doc("The keys that it sets too, and a more specific entry sets as well.")]


class EntryView(Status, frozen=True):
    """An entry of ``[[policies]]``."""

    destination: Annotated[str, doc("Its pattern.")]
    origin: Annotated[str, doc("Where it is written.")]
    values: Annotated[dict[str, Any], doc("The keys that it sets.")]


class PolicyList(Status, frozen=True):
    """All policies: what holds everywhere, and the entries, the most specific one first."""

    base: list[PolicyValue]
    entries: list[EntryView]


class DestinationPolicy(Status, frozen=True):
    """The policy of one destination, which need not be there."""

    destination: Annotated[str, doc("The destination.")]
    entries: Annotated[list[AppliedEntry], doc("The entries that match, the most specific one first.")]
    values: Annotated[list[PolicyValue], doc("All keys with their values.")]


class SettingView(msgspec.Struct, frozen=True):
    """A setting of the running broker."""

    key: Annotated[str, doc("The setting, as in the settings file.")]
    value: Annotated[Any, doc("Its value; a password in a URL is left out.")]
    default: Annotated[Any, doc("Its default.")]
    is_default: Annotated[bool, doc("Whether it has its default.")]
    text: Annotated[str, doc("What it means.")]


class SettingList(msgspec.Struct, frozen=True):
    """All settings but those of policies, without secrets."""

    settings: list[SettingView]


class LogQuery(Fields, frozen=True):
    """Which events: those behind the number ``after``."""

    after: Number = 0
    limit: PageLimit = 100


class LogPage(msgspec.Struct, frozen=True):
    """Events of the log, oldest first."""

    events: list[LoggedEvent]
    next: Annotated[int, doc("The after of the next page.")]
    lost: Annotated[bool, doc("Whether events behind after are forgotten: the last thousand are kept.")]


class StoreView(msgspec.Struct, frozen=True):
    """The store of the broker."""

    url: Annotated[str, doc("The URL of the store, without a password.")]
    format: Annotated[int, doc("The version of its format.")]
    sync: Annotated[str, doc("When a commit is on disk: the setting store.sync.")]
    writable: Annotated[bool, doc("Whether it accepts writes.")]
    error: Annotated[str | None, doc("Why it does not; null if it does.")]
    commits: Annotated[int, doc("Commits since the broker started, including failed ones.")]
    failures: Annotated[int, doc("Failures of the store since then.")]
    messages: Annotated[Use, doc("The size of all messages, and its limit.")]
    spool: Annotated[Use, doc("The size of the non-persistent messages in the spool, and its limit.")]
    file_bytes: Annotated[int | None, doc("The bytes in use in the store's files; null if it cannot be read.")]
    free_bytes: Annotated[int | None, doc("The bytes that removed messages left free in its files.")]
    disks: Annotated[list[DiskSpace], doc("The watched disks.")]
    lanes: Annotated[int, doc("The number of lanes.")]
    destinations: Annotated[int, doc("The number of destinations; partitions of streams count one each.")]
    destinations_limit: Annotated[int, doc("How many there may be.")]
    subscriptions: Annotated[int, doc("Durable subscriptions, and consumer groups by partition.")]
    subscriptions_limit: Annotated[int, doc("How many there may be.")]
    last_verify: Annotated[Verification | None, doc("The last check since the broker started; null for none.")]


def _policies(call: Call) -> PolicyList:
    policies = call.broker.core.settings.policies
    base = [
        PolicyValue(key, getattr(policies.base, key), policies.origins.get(key, "default"), text)
        for key, text in _texts().items()
    ]
    entries = [EntryView(_written(entry), entry.origin, dict(entry.values)) for entry in policies.ranked()]
    return PolicyList(base, entries)


def _policy(call: Call) -> DestinationPolicy:
    kinds = [str(kind) for kind in DestinationKind]
    if call.path["kind"] not in kinds:
        raise InvalidArgument(f"kind is {call.path['kind'][:60]!r}: write {', '.join(kinds)}", argument="kind")
    destination, policies = checked(DestinationKind(call.path["kind"]), call.name), call.broker.core.settings.policies
    deciding: dict[str, PolicyEntry] = {}
    entries = []
    for entry in policies.ranked(destination):
        applies = [key for key in entry.values if key not in deciding]
        deciding.update(dict.fromkeys(applies, entry))
        overridden = [key for key in entry.values if key not in applies]
        entries.append(AppliedEntry(_written(entry), entry.origin, applies, overridden))
    named = [(setting.key.removeprefix(_PREFIX), setting) for setting in policies.explain(destination)]
    values = [PolicyValue(key, setting.value, setting.origin, _texts()[key]) for key, setting in named]
    return DestinationPolicy(str(destination), entries, values)


@cache
def _texts() -> dict[str, str]:
    return {name.removeprefix(_PREFIX): key.text for name, key in KEYS.items() if name.startswith(_PREFIX)}


def _written(entry: PolicyEntry) -> str:
    return entry.pattern.text if entry.kind is None else f"{entry.kind}://{entry.pattern.text}"


def _settings(call: Call) -> SettingList:
    found = []
    for key in KEYS.values():
        section, _, name = key.name.rpartition(".")
        if section == "policy" or any([word in name for word in _SECRET]):
            continue
        holder = getattr(call.service.settings, section) if section else call.service.settings
        value = getattr(holder, name)
        told = shown(value) if name == "url" and value else value
        found.append(SettingView(key.name, told, key.default, value == key.default, key.text))
    return SettingList(found)


def _log(call: Call) -> LogPage:
    found, lost = call.services.events.behind(call.query.after, call.query.limit)
    return LogPage(found, found[-1].number if found else call.query.after, lost)


def _store(call: Call) -> StoreView:
    broker, settings = call.broker, call.service.settings
    core, error = broker.core, broker.failure.error
    used, free = call.admin.queues.store_size()
    return StoreView(
        url=shown(call.service.store.url), format=newest_format(call.service.store.url), sync=settings.store.sync,
        writable=error is None, error=None if error is None else str(error), commits=core.commits_done,
        failures=broker.failure.errors,
        messages=Use(core.stored_bytes, settings.store.limit), spool=Use(core.spool.used, core.spool.limit),
        file_bytes=used, free_bytes=free, disks=disk_space(broker), lanes=call.admin.queues.lane_count(),
        destinations=core.limits.destinations, destinations_limit=core.limits.max_destinations,
        subscriptions=core.limits.subscriptions, subscriptions_limit=core.limits.max_subscriptions,
        last_verify=call.services.verification.last,
    )  # fmt: skip


def _verify(call: Call) -> Started:
    call.services.verification.check()
    call.services.operations.check_room()
    operation = call.services.operations.begin("store.verified", "the store", call.by, call.user, background=True)
    records = call.admin.queues.record_count()
    call.services.operations.start(operation, partial(call.services.verification.run, operation, records), 0)
    return Started(operation.status)


ENDPOINTS += [
    Endpoint(
        "GET", "/policies", MONITOR, "List the policies: what holds everywhere, and the entries.", _policies,
        PolicyList,
    ),
    Endpoint(
        "GET", "/policies/{kind}/{name}", MONITOR, "Get the policy of a destination, and where each value comes from.",
        _policy, DestinationPolicy,
    ),
    Endpoint("GET", "/settings", OPERATE, "List the settings, without secrets.", _settings, SettingList),
    Endpoint("GET", "/log", OPERATE, "List the last events of the log.", _log, LogPage, LogQuery),
    Endpoint("GET", "/store", MONITOR, "Get the space, the limits and the last check of the store.", _store, StoreView),
    Endpoint(
        "POST", "/store/verify", OPERATE, "Check the store in the background, beside the running broker.", _verify,
        Started, status=202,
    ),
]  # fmt: skip
