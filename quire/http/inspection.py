"""The API's settings, policies, log and store: what the broker works with."""

from functools import partial
from typing import Annotated, Any

import msgspec

from quire.destination import DestinationKind, checked
from quire.errors import InvalidArgument
from quire.http.actions import Started
from quire.http.endpoint import Call, Endpoint, Fields, Number, PageLimit
from quire.http.recent_events import LoggedEvent
from quire.http.rights import MONITOR, OPERATE
from quire.http.verification.store_verification import Verification
from quire.management.described import doc
from quire.management.overview import DiskSpace, Use, disk_space
from quire.management.policy_view import DestinationPolicy, PolicyList, all_policies, policy_of
from quire.settings import KEYS
from quire.store.format import newest_format
from quire.store.urls import shown

_SECRET = ("password", "passcode", "secret")
"""A setting with one of these in its name is never told."""


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
    return all_policies(call.service.broker.core.settings.policies)


def _policy(call: Call) -> DestinationPolicy:
    kinds = [str(kind) for kind in DestinationKind]
    if call.path["kind"] not in kinds:
        raise InvalidArgument(f"kind is {call.path['kind'][:60]!r}: write {', '.join(kinds)}", argument="kind")
    destination = checked(DestinationKind(call.path["kind"]), call.name)
    return policy_of(call.service.broker.core.settings.policies, destination)


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
    found, lost = call.events.behind(call.query.after, call.query.limit)
    return LogPage(found, found[-1].number if found else call.query.after, lost)


def _store(call: Call) -> StoreView:
    broker, settings = call.service.broker, call.service.settings
    core, error = broker.core, broker.failure.error
    used, free = call.management.store_size()
    return StoreView(
        url=shown(call.service.store.url), format=newest_format(call.service.store.url), sync=settings.store.sync,
        writable=error is None, error=None if error is None else str(error), commits=core.commits_done,
        failures=broker.failure.errors,
        messages=Use(core.stored_bytes, settings.store.limit), spool=Use(core.spool.used, core.spool.limit),
        file_bytes=used, free_bytes=free, disks=disk_space(broker), lanes=call.management.lane_count(),
        destinations=core.limits.destinations, destinations_limit=core.limits.max_destinations,
        subscriptions=core.limits.subscriptions, subscriptions_limit=core.limits.max_subscriptions,
        last_verify=call.verification.last,
    )  # fmt: skip


def _verify(call: Call) -> Started:
    call.verification.check()
    call.operations.check_room()
    operation = call.operations.begin("store.verified", "the store", call.by, call.user, background=True)
    records = call.management.record_count()
    call.operations.start(operation, partial(call.verification.run, operation, records), 0)
    return Started(operation.status)


ENDPOINTS = [
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
