"""Answers as JSON, or an error; and who sends a request: by a password, a bearer token, or a certificate."""

import asyncio
import base64
import math
from collections.abc import Iterator
from dataclasses import replace

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.errors import InvalidArgument, NotAuthenticated, QuireError, TooManyLogins
from quire.security import Access, Credentials, Origin, Security

JSON = "application/json"

PIECE = 64 * 1024
"""How many bytes of an answer are given to the connection at once: the next ones go when the client has read them."""

RETRY_AFTER = "1"  # after how many seconds a client may try again what a limit has refused
CHALLENGE = 'Basic realm="Quire", charset="UTF-8", Bearer realm="Quire"'  # how one may log in


class Answer(Response):
    """An answer that is sent as fast as its client reads it: its request is done when all of it is read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), PIECE):
            piece = bytes(self.body[start : start + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def json_answer(content: object, status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(content), status, media_type=JSON)


def attachment(content: bytes, name: str) -> Answer:
    """Bytes of any kind, which a browser stores and never shows."""
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
    return Answer(content, headers=headers, media_type="application/octet-stream")


def error_answer(error: QuireError, status: int | None = None) -> Answer:
    """An error, with its own HTTP status or another one."""
    detail = {"code": error.code, "text": str(error), "advice": error.entry.advice, "data": error.data}
    content = msgspec.json.encode({"error": detail}, enc_hook=str)
    headers: dict[str, str] = {}
    if isinstance(error, NotAuthenticated):
        headers["www-authenticate"] = CHALLENGE
    elif isinstance(error, TooManyLogins):
        headers["retry-after"] = str(math.ceil(error.data["retry_after"]))
    elif error.entry.http == 503 and error.entry.retriable:
        headers["retry-after"] = RETRY_AFTER
    return Answer(content, status or error.entry.http, headers, media_type=JSON)


class PiecedResponse(Response):
    """A large answer: pieces that each take a few milliseconds; between two of them the event loop has its turn."""

    def __init__(self, pieces: Iterator[bytes], media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. For a client that has left, the pieces are made all the same."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def failed(request: Request, error: Exception) -> Response:
    """Answer with an error of ours; anything else is a defect, which the server logs."""
    return error_answer(error if isinstance(error, QuireError) else QuireError("an unexpected error occurred"))


async def not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"there is no {request.method} {request.url.path}"
    return error_answer(InvalidArgument(text, path=request.url.path), error.status_code)


CERTIFICATE = "certificate"  # where the state of a request has the subject of the certificate that its client has shown
LONGEST = 16 * 1024  # the longest header that is read, in characters


async def access_of(request: Request, security: Security) -> Access:
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
    client = request.client
    if client is None:
        return Origin("http", "unknown")
    return Origin("http", f"[{client.host}]:{client.port}" if ":" in client.host else f"{client.host}:{client.port}")


def read_credentials(header: str) -> Credentials:
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
