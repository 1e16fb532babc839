"""Who sends a request: HTTP Basic or a bearer token, in each request, or the client certificate of its connection."""

import asyncio
import base64
from dataclasses import replace

from starlette.requests import Request

from quire.errors import NotAuthenticated, QuireError
from quire.security import Access, Credentials, Origin, Security

CERTIFICATE = "certificate"
"""Where the state of a request has the subject of the certificate that its client has shown."""

LONGEST = 16 * 1024
"""The longest header that is read, in characters."""


async def access_of(request: Request, security: Security) -> Access:
    """What the caller may do; an error if it is not known who it is."""
    if (known := request.scope.get("access")) is not None:  # another process of the cluster has found it out
        assert isinstance(known, Access)
        return known
    done: asyncio.Future[Access | QuireError] = asyncio.get_running_loop().create_future()
    credentials = read_credentials(request.headers.get("authorization", ""))
    security.authenticate(
        replace(credentials, certificate=request.scope.get("state", {}).get(CERTIFICATE, "")),
        origin_of(request),
        lambda outcome: None if done.done() else done.set_result(outcome),
    )
    outcome = await done
    if isinstance(outcome, QuireError):
        raise outcome
    return outcome


def origin_of(request: Request) -> Origin:
    """Where a request comes from."""
    client = request.client
    if client is None:
        return Origin("http", "unknown")
    return Origin("http", f"[{client.host}]:{client.port}" if ":" in client.host else f"{client.host}:{client.port}")


def read_credentials(header: str) -> Credentials:
    """What the header ``Authorization`` shows."""
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if not header:
        return Credentials()
    if len(header) <= LONGEST and scheme.lower() == "bearer":
        return Credentials(token=value)
    if len(header) <= LONGEST and scheme.lower() == "basic":
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:  # no base64, or no UTF-8
            colon = ""
        if colon:
            return Credentials(name, password)
    raise NotAuthenticated("the header Authorization is neither Basic nor Bearer, or cannot be read")
