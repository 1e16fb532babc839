"""Who looks at the console, and the HTTP APIs of brokers, as it calls them: never blocking, always as a user; its TLS.

A session has a secret in a cookie, and keeps the tokens of its brokers on the server. What is asked again and again is
asked once for all pages that show the same.
"""

import asyncio
import contextlib
import json
import secrets
import ssl
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from quire.client.remote import client_context, remote_error
from quire.clock import Clock
from quire.errors import AccessRefused, BrokerUnreachable, InvalidArgument, QuireError
from quire.security import Proof
from quire.security.accounts import split_token

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


IDLE_LIMIT = 8 * 3600.0  # after how many seconds without a request a session ends
MAX_SESSIONS = 1000  # how many sessions there are at most; the one that was not used for the longest time ends first
TOKEN_LIFETIME = 12 * 3600  # for how many seconds the console asks for a token; a session ends with it


@dataclass(eq=False)
class Caller:
    """One user of one broker: every call of a page is made as this user."""

    api: BrokerApi
    authorization: str | None = field(repr=False)  # the header that says who it is; None while the broker has no users
    who: dict[str, Any]  # what the broker says of the user (``GET /whoami``)
    token: str = ""  # the id of the token that the console has made, to revoke it; empty for none

    @property
    def permissions(self) -> frozenset[str]:
        return frozenset(self.who["permissions"])

    async def call(self, method: str, path: str, body: object = None, **query: object) -> dict[str, Any]:
        return await self.api.call(method, path, self.authorization, body, **query)


class Session:
    def __init__(self, now: float) -> None:
        self.id = secrets.token_urlsafe(32)
        self.used_at = now  # on the monotonic clock
        self.callers: dict[str, Caller] = {}  # by the broker's key

    def forget(self, caller: Caller) -> None:
        if self.callers.get(caller.api.key) is caller:
            del self.callers[caller.api.key]


class Sessions:
    """All sessions; ``ended`` is told of each one that ends."""

    def __init__(self, clock: Clock, ended: Callable[[Session], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # the one that was used last is at the end

    def __len__(self) -> int:
        return len(self._sessions)

    def new(self) -> Session:
        self._end_idle()
        while len(self._sessions) >= MAX_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        session = Session(self._clock.monotonic())
        self._sessions[session.id] = session
        return session

    def find(self, identity: str | None) -> Session | None:
        self._end_idle()
        session = self._sessions.get(identity or "")
        if session is not None:
            session.used_at = self._clock.monotonic()
            self._sessions.move_to_end(session.id)
        return session

    def end(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.callers.clear()
            self._ended(session)

    def _end_idle(self) -> None:
        least = self._clock.monotonic() - IDLE_LIMIT
        while self._sessions and (oldest := next(iter(self._sessions.values()))).used_at < least:
            self.end(oldest)


class Access:
    """Logs users in and out. A password goes to the broker once; what is kept is a token, which ends."""

    def __init__(self) -> None:
        self._leaving: set[asyncio.Task[None]] = set()

    async def without_login(self, api: BrokerApi) -> Caller:
        return Caller(api, None, await api.call("GET", "/whoami"))

    async def log_in(self, api: BrokerApi, user: str, password: str) -> Caller:
        """A caller for a user; a token or an access token may stand in the place of the password.

        Raises:
            QuireError: the broker does not accept the user.
        """
        basic = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        if split_token(password) or password.count(".") == 2:  # it may be a token, which can make no other
            who = await api.call("GET", "/whoami", basic)
            if who["proof"] in (Proof.TOKEN, Proof.JWT):
                return Caller(api, f"Bearer {password}", who)
        made = await api.call("POST", "/tokens", basic, {"expires_in": TOKEN_LIFETIME, "text": "console"})
        bearer = f"Bearer {made['secret']}"
        return Caller(api, bearer, await api.call("GET", "/whoami", bearer), made["token"]["id"])

    def leave(self, callers: list[Caller]) -> None:
        for caller in callers:
            if caller.token:
                task = asyncio.create_task(_revoke(caller))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)


async def _revoke(caller: Caller) -> None:
    with contextlib.suppress(QuireError):  # it ends by itself later
        await caller.call("DELETE", path_of("tokens", caller.token))


Take = Callable[[dict[str, Any] | QuireError], None]  # takes each answer, or why there is none


class Watch:
    """One page's part in a poller. It is idle until the page is seen."""

    def __init__(self, poller: "Poller", take: Take) -> None:
        self.poller = poller
        self.take = take

    def show(self, seen: bool) -> None:
        self.poller.set_active(self, seen)

    def close(self) -> None:
        self.show(seen=False)
        self.poller.watches.discard(self)


class Poller:
    def __init__(self, caller: Caller, path: str, query: dict[str, object], seconds: float) -> None:
        self._caller = caller
        self._path = path
        self._query = query
        self._seconds = seconds
        self.watches: set[Watch] = set()  # of pages that are seen or hidden
        self._active: list[Watch] = []
        self._task: asyncio.Task[None] | None = None

    def set_active(self, watch: Watch, seen: bool) -> None:
        """Ask while at least one page is seen."""
        if seen and watch not in self._active:
            self._active.append(watch)
        elif not seen and watch in self._active:
            self._active.remove(watch)
        if self._active and self._task is None:
            self._task = asyncio.create_task(self._run())
        elif not self._active and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            answer: dict[str, Any] | QuireError
            try:
                answer = await self._caller.call("GET", self._path, **self._query)
            except QuireError as error:
                answer = error
            for watch in list(self._active):
                watch.take(answer)


class Pollers:
    """All pollers: pages of one user that ask the same share one."""

    def __init__(self) -> None:
        self._pollers: dict[tuple[object, ...], Poller] = {}

    def __len__(self) -> int:
        return len(self._pollers)

    def watch(self, caller: Caller, path: str, query: dict[str, object], seconds: float, take: Take) -> Watch:
        """Have a question asked every some seconds, once ``Watch.show`` says that the page is seen."""
        for unused in [key for key, poller in self._pollers.items() if not poller.watches]:
            del self._pollers[unused]
        key = (caller.api.key, caller.authorization, path, tuple(sorted(query.items(), key=str)), seconds)
        watch = Watch(self._pollers.setdefault(key, Poller(caller, path, query, seconds)), take)
        watch.poller.watches.add(watch)
        return watch
