"""The actions that can be tried out first, and done in the background; the operations under way."""

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any

import msgspec

from quire.http.answers import Answer, json_answer
from quire.http.endpoint import USER, ActionQuery, Call, Endpoint
from quire.http.operations import Counted, DryRun, Intent, Operation
from quire.resources import OperationStatus
from quire.security import Permission


class Started(msgspec.Struct, frozen=True):
    """The operation that has begun."""

    operation: OperationStatus


class OperationList(msgspec.Struct, frozen=True):
    """The running operations, and the last ones that have ended, the newest first."""

    operations: list[OperationStatus]


async def act(row: Endpoint, call: Call) -> Answer | None:
    """Try an action out, check its token, start it in the background. None: it is to be done now, and waited for."""
    query: ActionQuery = call.query
    intent = _intent(row, call)
    if query.dry_run:
        assert row.dry_run is not None
        call.changes["dry_run"] = True
        found = row.dry_run(call)
        found = await found if isawaitable(found) else found
        return json_answer(_dry_run(row, call, intent, found))
    if query.token is not None:
        call.services.confirmations.check(query.token, intent)
    if not query.background:
        return None
    call.services.operations.check_room()
    operation = call.services.operations.begin(
        f"{row.method} {row.path}", call.target, call.by, call.user, background=True
    )
    call.operation = operation
    call.changes["operation"] = operation.status.id
    call.services.operations.start(operation, partial(_work, row.handle, call), len(intent.body))
    return json_answer(Started(operation.status), 202)


async def _work(handle: Callable[[Call], Any], call: Call) -> None:
    answer = handle(call)
    if isawaitable(answer):
        await answer


def _intent(row: Endpoint, call: Call) -> Intent:
    rest = {
        name: value for name, value in msgspec.structs.asdict(call.query).items()
        if name not in ActionQuery.__struct_fields__
    }  # fmt: skip
    action = msgspec.json.encode([row.method, row.path, sorted(call.path.items())]).decode()
    return Intent(call.user, action, msgspec.json.encode(rest), msgspec.json.encode(call.body))


def _dry_run(row: Endpoint, call: Call, intent: Intent, found: Counted) -> DryRun:
    token, ends_at = call.services.confirmations.token(intent)
    return DryRun(
        f"{row.method} {row.path}", call.path, found.messages, found.is_least, found.consumers, token, ends_at
    )


def _sees(call: Call, operation: Operation) -> bool:
    """Users see their own operations, monitors all of them."""
    return operation.user == call.user or call.access.may(Permission.MONITOR)


def _list(call: Call) -> OperationList:
    return OperationList([each.status for each in call.services.operations.all() if _sees(call, each)])


def _existing(call: Call) -> Operation:
    operation = call.services.operations.existing(call.path["operation"])
    if not _sees(call, operation):
        call.access.require(Permission.MONITOR)
    return operation


def _get(call: Call) -> OperationStatus:
    return _existing(call).status


def _cancel(call: Call) -> OperationStatus:
    operation = _existing(call)
    if operation.user != call.user:
        call.access.require(Permission.OPERATE)
    operation.is_cancelled = operation.status.state == "running"
    call.audit("operation.cancelled", "the operation {operation} was cancelled")
    return operation.status


SEE = USER._replace(text="a login for one's own, else monitor")
CANCEL = USER._replace(text="a login for one's own, else the role operator or administrator")

ENDPOINTS = [
    Endpoint(
        "GET", "/operations", SEE, "List the long operations that run, and the last ones that have ended.", _list,
        OperationList,
    ),
    Endpoint("GET", "/operations/{operation}", SEE, "Get how far an operation has come.", _get, OperationStatus),
    Endpoint(
        "DELETE", "/operations/{operation}", CANCEL, "Cancel an operation; what it has done stays done.", _cancel,
        OperationStatus,
    ),
]  # fmt: skip
