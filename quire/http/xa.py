"""The API's prepared XA transactions: an operator decides over them when their transaction manager does not."""

import msgspec

from quire.http.endpoint import Call, Endpoint
from quire.http.listing import table_listing
from quire.http.rights import MONITOR, OPERATE
from quire.management.xa_management import Prepared


class Resolved(msgspec.Struct, frozen=True):
    """The outcome of a prepared transaction: ``commit``, ``rollback`` or ``forget``."""

    xid: str
    outcome: str


async def _resolve(call: Call, outcome: str) -> Resolved:
    xid = call.xa.resolve(call.path["xid"], outcome)
    text = "the prepared transaction {xid} was resolved: {outcome}"
    return await call.changed("xa.resolved", text, Resolved(xid, outcome), xid=xid, outcome=outcome)


ENDPOINTS = [
    table_listing(
        "PreparedList", "/xa", MONITOR, "List the prepared transactions, the oldest first.", "transactions", Prepared,
        lambda call: call.xa.prepared(), lambda _call, entry: entry,
    ),
    Endpoint(
        "POST", "/xa/{xid}/commit", OPERATE, "Commit a prepared transaction in place of its transaction manager.",
        lambda call: _resolve(call, "commit"), Resolved,
    ),
    Endpoint(
        "POST", "/xa/{xid}/rollback", OPERATE, "Roll back a prepared transaction in place of its transaction manager.",
        lambda call: _resolve(call, "rollback"), Resolved,
    ),
    Endpoint(
        "DELETE", "/xa/{xid}", OPERATE, "Forget the heuristic outcome of a transaction.",
        lambda call: _resolve(call, "forget"), Resolved,
    ),
]  # fmt: skip
