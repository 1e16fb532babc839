"""The API's door to the bulk server: where it is, started if it does not run."""

import msgspec

from quire.http.endpoint import Call, Endpoint
from quire.http.rights import USER
from quire.settings import split_address

_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class BulkServer(msgspec.Struct, frozen=True):
    """The addresses of the processes of a bulk server, any of which answers, and the token for URLs: ``?token=...``.

    With the token one reads the destinations that its user may read.
    """

    urls: list[str]
    token: str


class BulkAccess(msgspec.Struct, frozen=True):
    """The bulk server of a broker; in a cluster those of all shards, in order, or of the one that was named."""

    servers: list[BulkServer]


async def _open(call: Call) -> BulkAccess:
    await call.bulk.start()
    urls = [_url(call, address) for address in call.bulk.addresses]
    return BulkAccess([BulkServer(urls, call.bulk.readers.token_of(call.access))])


def _url(call: Call, address: str) -> str:
    """The URL of a process, as the caller can reach it: beside the API under the name that certificates have."""
    host, port = split_address(address)
    own = split_address(call.service.settings.http.address)[0]
    if call.is_relayed:  # by another process of the cluster, which the caller has reached
        scheme = "https" if call.service.settings.tls.certificate else "http"
        host = own if host in _ANYWHERE else host
    else:
        scheme = call.scheme
        host = call.host if host in (*_ANYWHERE, own) else host
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


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
