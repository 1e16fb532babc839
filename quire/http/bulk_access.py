"""The API's door to the bulk server: where it is, started if it does not run."""

import msgspec

from quire.http.endpoint import Call, Endpoint
from quire.settings import split_address

_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class BulkAccess(msgspec.Struct, frozen=True):
    """Where millions of messages are read, and what has to stand in the URL: ``?token=...``."""

    url: str
    token: str


async def _open(call: Call) -> BulkAccess:
    await call.bulk.start()
    host, port = split_address(call.bulk.address)
    if host in _ANYWHERE:
        host = call.host
    return BulkAccess(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", call.bulk.token)


ENDPOINTS = [
    Endpoint("POST", "/bulk", "Where to read messages by the million; a server is started for it.", _open, BulkAccess),
]
