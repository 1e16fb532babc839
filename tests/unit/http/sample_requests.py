"""One request to each endpoint that makes sense to a broker that has one of everything, named ``q``."""

from typing import Any

import msgspec

from quire.broker.transactions.decisions import Xid
from quire.http.broker import HistoryQuery
from quire.http.bulk.launcher import Launcher
from quire.http.endpoint import Endpoint, Fields
from quire.http.operations import Operation
from quire.http.users import CheckQuery
from quire.http.verification import StoreVerification
from quire.http.writes import StageQuery
from tests.unit.broker.harness import letter
from tests.unit.http.conftest import Api, prepare

XID = Xid(1, b"global", b"branch")

_HANDLES = {"member": "m", "handles": ["1.0.1"]}
_BODIES: dict[str, dict[str, Any]] = {
    "Chosen": {}, "Move": {"to": "r"}, "Redrive": {}, "NewMessage": {"body": "b"}, "Partitions": {"count": 5},
    "Receive": {}, "Acknowledge": _HANDLES, "Reject": _HANDLES, "Extend": {**_HANDLES, "seconds": 5},
    "Leave": {"member": "m"}, "Columns": {"destination": "q", "value": [b"b"]}, "Discard": {"producer": "p"},
    "StagedCommit": {"producer": "p", "sequence": 1, "stages": []},
    "Reset": {"to": "latest"}, "Shift": {"by": -1}, "Skip": {}, "Clone": {"to": "h"},
    "AssignmentDraft": {"members": [{"id": "m"}]}, "ProgressNote": {"offsets": {}},
    "NewStream": {}, "NewPin": {"time_to_live": 60}, "NewDurable": {"topic": "q"},
    "NewUser": {"name": "alice"}, "UserChange": {"roles": ["x"]}, "NewPassword": {"password": "p"},
    "NewPlace": {"shard": 1}, "Moving": {"broker": "b"}, "Leaving": {"broker": "b"},
    "NewRule": {"subject": "*", "allow": ["read"], "destination": "q"}, "NewToken": {"owner": "bob", "expires_in": 60},
}  # fmt: skip
_QUERIES: dict[type[Fields], dict[str, str]] = {
    StageQuery: {"producer": "p"},
    HistoryQuery: {"of": "queue", "name": "q"},
    CheckQuery: {"user": "alice", "roles": "x", "action": "read", "destination": "q"},
}
_NAMES = {
    "name": "q", "client": "c", "xid": XID, "partition": 0, "stream": "q", "group": "g", "pin": "p", "id": "1",
    "producer": "p", "user": "bob", "rule": "r1", "token": "t", "kind": "queue", "operation": 1, "sequence": 1,
    "offset": 1, "shard": 1,
}  # fmt: skip


class Running(Launcher):
    """A bulk server that runs, as far as the application can see; it listens everywhere."""

    @property
    def addresses(self) -> list[str]:
        return ["0.0.0.0:8162", "0.0.0.0:8163"]

    async def start(self) -> None:
        """It runs."""


class Checked(StoreVerification):
    """A check of a store that can always be made, and is through at once."""

    def check(self) -> None:
        """It can be made."""

    async def run(self, operation: Operation, of: int) -> None:
        operation.progress(of, of)


def fill(api: Api) -> None:
    letter(api.stepped, "/queue/x", "q")
    api.call("PUT", "/durables/c/q", json={"topic": "q"})
    api.call("POST", "/topics/q/messages", json={"body": "b"})
    prepare(api, XID)
    api.call("POST", "/streams/q/messages", json={"body": "b", "count": 4})
    api.call("POST", "/streams/q/groups/g/receive", json={"start": "earliest"})
    api.application.services.operations.begin("messages.purged", "queue q", "somebody else", "somebody else")
    api.application.services.verification = Checked("memory:", api.stepped.clock)


def sample_request(row: Endpoint, names: dict[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """The path of a request, and what it sends. Other names in the path are those of destinations in the body too."""
    body = None if row.body is None else _BODIES[row.body.__name__]
    if names and body:
        body = {key: names["name"] if value == "q" else value for key, value in body.items()}
    sent: dict[str, Any] = {"content": msgspec.msgpack.encode(body)} if row.packed else {"json": body}
    return row.path.format_map({**_NAMES, **(names or {})}), {**sent, "params": _QUERIES.get(row.query, {})}
