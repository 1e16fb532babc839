"""The API's door to the bulk server: where it is, started if it does not run."""

import msgspec

from quire.http.endpoint import Call, Endpoint
from quire.http.rights import ADMINISTER
from quire.settings import split_address

_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class BulkAccess(msgspec.Struct, frozen=True):
    """The address of the bulk server, and the token for the URL: ``?token=...``."""

    url: str
    token: str


async def _open(call: Call) -> BulkAccess:
    await call.bulk.start()
    host, port = split_address(call.bulk.address)
    if host in _ANYWHERE:
        host = call.host
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return BulkAccess(f"{call.scheme}://{address}", call.bulk.token)


ENDPOINTS = [
    Endpoint(
        "POST", "/bulk", ADMINISTER, "Start the bulk server if it does not run, and get its address.", _open, BulkAccess
    ),
]
