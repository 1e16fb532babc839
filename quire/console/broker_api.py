"""The HTTP API of one broker, as the console calls it: never with a blocking call, always as a user; and its TLS."""

import json
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from quire.client.remote import client_context, remote_error
from quire.errors import AccessRefused, BrokerUnreachable, InvalidArgument

_END = "-----END CERTIFICATE-----"


class ConsoleTls(NamedTuple):
    """The files that a console encrypts with."""

    certificate: str = ""  # its certificate, PEM; empty: browsers connect without TLS
    key: str = ""  # the key of the certificate; empty: the same file
    pinned: str = ""  # the certificate of the broker, whatever its names; empty: as other clients trust brokers

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def trust(self) -> ssl.SSLContext:
        """What calls of ``https://`` APIs are made with."""
        if not self.pinned:
            return client_context()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The broker itself has named the file: this very certificate is trusted, and none that its authority signed.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            text = Path(self.pinned).read_text()
            context.load_verify_locations(cadata=text[: text.index(_END)] + _END)
        except (OSError, ValueError) as error:
            text = f"the certificate {self.pinned} cannot be used: {error}"
            raise InvalidArgument(text, argument="tls.certificate") from error
        return context


CONNECT_LIMIT = 5.0  # how long a connection to the broker may take, in seconds

ANSWER_LIMIT = 60.0
"""How long an answer may take, in seconds; what may take longer runs in the background of the broker."""

MAX_CONNECTIONS = 32  # how many connections to one broker all pages share


class LoginNeeded(AccessRefused):
    """The broker wants to know who the user is, or does not accept what it was told any more."""


class BrokerApi:
    """Calls the HTTP API of one broker."""

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport | None = None, tls: ConsoleTls | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidArgument(f"{url!r} is not the URL of a broker: write http://127.0.0.1:8161", url=url)
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.key = parts.netloc  # names the broker in links
        self._client = httpx.AsyncClient(
            base_url=self.url + "/api/v1",
            transport=transport,
            verify=(tls or ConsoleTls()).trust() if parts.scheme == "https" else False,
            timeout=httpx.Timeout(ANSWER_LIMIT, connect=CONNECT_LIMIT),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            trust_env=False,  # no proxy of the environment stands between a console and its broker
        )

    async def call(
        self, method: str, path: str, authorization: str | None = None, body: object = None, **query: object
    ) -> dict[str, Any]:
        """Make one call below ``/api/v1``, to a path of ``path_of``; what is None of the query is left out."""
        response = await self._send(method, path, authorization, body, query)
        try:
            answer: dict[str, Any] = json.loads(response.content) if response.content else {}
            if response.status_code < 400:
                return answer
            error = answer["error"]
            code, text, data = error["code"], error["text"], error.get("data") or {}
        except (ValueError, KeyError, TypeError) as error:
            raise BrokerUnreachable(f"the server at {self.url} is not a Quire broker", url=self.url) from error
        if response.status_code == 401:
            raise LoginNeeded(text)
        raise remote_error(code, text, data)

    async def content(self, path: str, authorization: str | None) -> httpx.Response:
        return await self._send("GET", path, authorization, None, {})

    async def _send(
        self, method: str, path: str, authorization: str | None, body: object, query: dict[str, object]
    ) -> httpx.Response:
        headers = {"accept": "application/json"}
        if authorization:
            headers["authorization"] = authorization
        content = None if body is None else json.dumps(body).encode()
        given = {name: _written(value) for name, value in query.items() if value is not None}
        try:
            return await self._client.request(method, path, params=given, headers=headers, content=content)
        except httpx.InvalidURL as error:  # a name that is longer than any URL
            raise InvalidArgument(f"the request cannot be written: {error}") from error
        except httpx.HTTPError as error:
            text = f"no broker answers at {self.url}: {str(error) or type(error).__name__}"
            raise BrokerUnreachable(text, url=self.url) from error

    async def close(self) -> None:
        await self._client.aclose()


def path_of(*parts: object) -> str:
    return "".join(["/" + _part(str(part)) for part in parts])


def _part(text: str) -> str:
    """One part; the names ``.`` and ``..`` would be taken for steps in the path."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
