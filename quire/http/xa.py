"""The API's prepared XA transactions: an operator decides over them when their coordinator does not."""

import msgspec

from quire.broker.transactions.xa_registry import PreparedEntry
from quire.broker.transactions.xid import Xid
from quire.http.endpoint import Call, Endpoint, listing


class Prepared(msgspec.Struct, frozen=True):
    """A prepared transaction.

    ``state`` is ``prepared``, ``committing``, ``rolling back`` or ``decided``: an operator has, and ``outcome`` says
    how; it is remembered for its coordinator until it is forgotten. The messages it has acknowledged are hidden from
    consumers until then.
    """

    xid: str
    state: str
    outcome: str
    age_seconds: float
    messages: int
    acknowledgements: int
    bytes: int


class Resolved(msgspec.Struct, frozen=True):
    """What became of a prepared transaction: ``commit``, ``rollback`` or ``forget``."""

    xid: str
    outcome: str


async def _resolve(call: Call, outcome: str) -> Resolved:
    registry, xid = call.service.broker.xa, Xid.parse(call.path["xid"])
    if outcome == "commit":
        registry.commit(xid)
    elif outcome == "rollback":
        registry.rollback(xid)
    else:
        registry.branch(xid).forget()
    text, resolved = "the prepared transaction {xid} was resolved: {outcome}", Resolved(str(xid), outcome)
    return await call.changed("xa.resolved", text, resolved, xid=str(xid), outcome=outcome)


def _described(entry: PreparedEntry) -> Prepared:
    return Prepared(
        str(entry.xid), entry.state, entry.outcome, entry.age, entry.messages, entry.acknowledgements, entry.bytes
    )


ENDPOINTS = [
    listing(
        "PreparedList", "/xa", "Prepared transactions, the oldest first.", "transactions", Prepared,
        lambda call: [_described(entry) for entry in call.service.broker.xa.prepared()],
    ),
    Endpoint(
        "POST", "/xa/{xid}/commit", "Commit it in place of its coordinator.",
        lambda call: _resolve(call, "commit"), Resolved,
    ),
    Endpoint(
        "POST", "/xa/{xid}/rollback", "Roll it back in place of its coordinator.",
        lambda call: _resolve(call, "rollback"), Resolved,
    ),
    Endpoint(
        "DELETE", "/xa/{xid}", "Forget what an operator has decided over it.",
        lambda call: _resolve(call, "forget"), Resolved,
    ),
]  # fmt: skip
