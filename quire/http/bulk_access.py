"""The API's door to the bulk server: where it is, started if it does not run."""

import msgspec

from quire.http.endpoint import Call, Endpoint
from quire.http.rights import USER
from quire.settings import split_address

_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class BulkAccess(msgspec.Struct, frozen=True):
    """The bulk server: the addresses of its processes, any of which answers, and the token for URLs: ``?token=...``.

    With the token one reads the destinations that its user may read.
    """

    urls: list[str]
    token: str


async def _open(call: Call) -> BulkAccess:
    await call.bulk.start()
    return BulkAccess([_url(call, address) for address in call.bulk.addresses], call.bulk.readers.token_of(call.access))


def _url(call: Call, address: str) -> str:
    """The URL of a process, as the caller can reach it: beside the API under the name that certificates have."""
    host, port = split_address(address)
    if host in (*_ANYWHERE, split_address(call.service.settings.http.address)[0]):
        host = call.host
    return f"{call.scheme}://[{host}]:{port}" if ":" in host else f"{call.scheme}://{host}:{port}"


ENDPOINTS = [
    Endpoint(
        "POST",
        "/bulk",
        USER,
        "Start the bulk server if it does not run, and get its addresses.",
        _open,
        BulkAccess,
    ),
]
