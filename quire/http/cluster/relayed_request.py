"""A request that another process of the cluster passes on: it says, signed, who the caller is."""

import base64
import hashlib
import hmac

import msgspec
from starlette.requests import Request

from quire.clock import Clock
from quire.errors import NotAuthenticated, ShardMoved
from quire.security import Access, Origin, Security
from quire.server.cluster.seat import Seat

HEADER = "x-quire-relayed"

VALID = 30_000
"""For how long a signature is valid, in milliseconds: the clocks of the machines may differ by as much."""


class Caller(msgspec.Struct, frozen=True):
    """Who has made a request at another process, and for which shard and target it is.

    Attributes:
        user: as whom it logged in; empty while there are no users.
        roles: its roles that count.
        address: where it comes from.
        at: when, in milliseconds since the epoch.
        shard: which shard is to answer.
        request: method and target.
    """

    user: str
    roles: list[str]
    address: str
    at: int
    shard: int
    request: str


def signed(seat: Seat, clock: Clock, access: Access, shard: int, request: str) -> str:
    """The header of a request to another process.

    Args:
        request: method and target, joined by a space.
    """
    who = access.principal
    caller = Caller(who.name, sorted(who.roles), access.origin.address, clock.now_ms(), shard, request)
    text = base64.urlsafe_b64encode(msgspec.json.encode(caller)).decode()
    return f"{text}.{_signature(seat.secret, text)}"


def relayed_access(seat: Seat, clock: Clock, security: Security, request: Request, target: str) -> Access:
    """What the caller of a request may do that another process passes on.

    Raises:
        NotAuthenticated: the header is not signed by a process of this cluster, or too old.
        ShardMoved: another shard was meant.
    """
    text, _, signature = request.headers[HEADER].partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(seat.secret, text).encode()):
        raise NotAuthenticated("the request is not from a process of this cluster")
    caller = msgspec.json.decode(base64.urlsafe_b64decode(text), type=Caller)
    if abs(clock.now_ms() - caller.at) > VALID or caller.request != f"{request.method} {target}":
        raise NotAuthenticated("the signature of the request has ended, or is of another one")
    if caller.shard != seat.map.own:
        raise ShardMoved(f"shard {caller.shard} is not here", shard=caller.shard)
    return security.vouched(caller.user, caller.roles, Origin("http", caller.address))


def _signature(secret: bytes, text: str) -> str:
    return hmac.new(secret, b"http " + text.encode(), hashlib.sha256).hexdigest()
