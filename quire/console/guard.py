"""Stands in front of NiceGUI: what has no session or is no page of the console makes no client there.

The pages to log in and the bodies of messages as files are made here, without NiceGUI: they cost the server nothing,
whichever client asks for them.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from html import escape
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from string import Template
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.console.session import Access, BrokerApi, LoginNeeded, Session, Sessions, path_of
from quire.errors import BrokerUnreachable, QuireError
from quire.logs import event
from quire.settings import is_loopback, is_own_name

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"
    "%3Crect width='32' height='32' rx='7' fill='%230b6b7d'/%3E"
    "%3Cpath d='M9 8h10l4 4v12H9z' fill='%23fff'/%3E"
    "%3Cpath d='M12 15h8M12 19h8' stroke='%230b6b7d' stroke-width='2'/%3E%3C/svg%3E"
)
"""The picture of the browser's tab: a page."""

PLAIN = Template((Path(__file__).parent / "plain.html").read_text("utf-8"))


def login_page(broker: str, target: str, error: str | None = None) -> bytes:
    told = f'<p class="error" role="alert">{escape(error)}</p>' if error else ""
    return _page(
        "Log in",
        f"<h1>Quire</h1><p>Log in to the broker at {escape(broker)}.</p>"
        f'<form method="post" action="/login"><input type="hidden" name="broker" value="{escape(broker)}">'
        f'<input type="hidden" name="next" value="{escape(target)}">'
        '<label for="user">User</label>'
        '<input id="user" name="user" autocomplete="username" autocapitalize="none" required autofocus>'
        '<label for="password">Password</label>'
        '<input id="password" name="password" type="password" autocomplete="current-password" required>'
        f"{told}<button>Log in</button></form>",
    )


def notice_page(title: str, text: str, reload_seconds: int | None = None) -> bytes:
    head = f'<meta http-equiv="refresh" content="{reload_seconds}">' if reload_seconds else ""
    return _page(title, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", head)


def _page(title: str, content: str, head: str = "") -> bytes:
    return PLAIN.substitute(title=escape(title), content=content, head=head, icon=ICON).encode()


COOKIE = "quire_console"
MAX_FORM = 8 * 1024  # how many bytes a form may have

HEADERS = [
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        # NiceGUI makes its pages of scripts in the page and compiles templates: it needs both `unsafe` words.
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; base-uri 'none'; "
        b"form-action 'self'; frame-ancestors 'none'",
    ),
]
"""What every answer has: no page elsewhere may frame the console, and nothing is fetched from elsewhere."""


class Visit(NamedTuple):
    """Whose request it is, for a page: ``scope["quire.visit"]``."""

    session: Session
    api: BrokerApi


@dataclass(kw_only=True, eq=False)
class Guard:
    """The ASGI application that the server runs."""

    MAX_CLIENTS: ClassVar = 200  # how many pages may be open at once

    app: ASGIApp
    brokers: dict[str, BrokerApi]  # by their keys; the first one is meant where a link names none
    sessions: Sessions
    access: Access
    pages: Collection[str]
    static: tuple[str, ...]  # how the paths of files begin
    clients: Callable[[], int]  # how many pages are open
    host: str  # where the server listens
    allow_open: bool  # whether brokers without users are shown although the host is not loopback
    names: str  # of the console, with spaces between; they count where a broker without users is shown

    def __post_init__(self) -> None:
        self.allow_open = self.allow_open or is_loopback(self.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":

            async def send_guarded(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], *HEADERS]
                await send(message)

            answer = await self._answer(Request(scope, receive))
            await (answer or self.app)(scope, receive, send_guarded)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Only the pages' own scripts, of a browser that is logged in, get one.
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        known = scope["path"].startswith("/_nicegui_ws/") and self.sessions.find(_cookie(headers)) is not None
        if known and origin and self._is_host_allowed(headers) and urlsplit(origin).netloc == headers.get("host"):
            await self.app(scope, receive, send)
        else:
            event("console.refused", "a websocket was refused", logging.WARNING, origin=str(origin)[:100])
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def _is_host_allowed(self, headers: Headers) -> bool:
        """Another name may be that of a page elsewhere, which has it point here."""
        return not self.allow_open or is_own_name(headers.get("host", ""), self.host, self.names)

    async def _answer(self, request: Request) -> Response | None:
        """The answer to a request that is not for the pages; None lets it through to them."""
        path = request.url.path
        if not self._is_host_allowed(request.headers):
            return _notice(421, "Not here", "Use the address of the console, or have its name in http.names.")
        if request.method == "POST":
            origin = request.headers.get("origin", "")
            if urlsplit(origin).netloc != request.headers.get("host"):
                return _notice(403, "Refused", "The request comes from a page elsewhere.")
            return await self._log_in(request) if path == "/login" else self._log_out(request, path)
        if request.method not in ("GET", "HEAD"):
            return _notice(405, "Not allowed", "The console has pages only.")
        if path.startswith(self.static):
            return None
        if path == "/login":
            return self._login_form(request)
        if path == "/enter":
            return self._enter(request)
        if path not in self.pages:
            return _notice(404, "Not found", "There is no such page.")
        return await self._page(request)

    async def _page(self, request: Request) -> Response | None:
        """Let a request through to a page if the browser has a session and the broker knows its user."""
        api = self._broker(request.query_params.get("broker"))
        if api is None:
            return _notice(404, "Not found", "The console shows no such broker.")
        if request.method == "HEAD":  # no client for who only looks whether it is there
            return Response()
        if self.clients() >= self.MAX_CLIENTS:
            return _notice(503, "Busy", "Too many pages of this console are open. Close some.", reload_seconds=5)
        session = self.sessions.find(_cookie(request.headers))
        if session is not None and api.key in session.callers:
            request.scope["quire.visit"] = Visit(session, api)
            return None
        try:
            caller = await self.access.without_login(api)
        except LoginNeeded:
            return RedirectResponse(f"/login?{urlencode({'broker': api.key, 'next': _target(request)})}", 303)
        except BrokerUnreachable as error:
            return _notice(503, "The broker does not answer", str(error), reload_seconds=3)
        except QuireError as error:
            return _notice(502, "The broker refuses", str(error))
        if not self.allow_open:
            return _notice(403, "Refused", "The broker has no users, so the console shows it on loopback only.")
        session = session or self.sessions.new()
        session.callers[api.key] = caller
        # The page is asked for again, with the cookie: a program that keeps none makes no client.
        response = RedirectResponse(f"/enter?{urlencode({'next': _target(request)})}", 303)
        return _with_cookie(response, session, request)

    def _enter(self, request: Request) -> Response:
        if self.sessions.find(_cookie(request.headers)) is None:
            return _notice(400, "No cookies", "The console needs cookies: allow them, and open it again.")
        return RedirectResponse(_local(request.query_params.get("next")), 303)

    def _login_form(self, request: Request) -> Response:
        api = self._broker(request.query_params.get("broker"))
        if api is None:
            return _notice(404, "Not found", "The console shows no such broker.")
        return _html(200, login_page(api.key, _local(request.query_params.get("next"))))

    async def _log_in(self, request: Request) -> Response:
        form = await _form(request)
        api = self._broker(form.get("broker"))
        if form.get("user") is None or api is None:
            return _notice(400, "Not valid", "The form is not complete.")
        target = _local(form.get("next"))
        try:
            caller = await self.access.log_in(api, form["user"], form.get("password", ""))
        except QuireError as error:
            event("console.login-refused", f"a log-in to {api.key} was refused", logging.WARNING, broker=api.key)
            return _html(401, login_page(api.key, target, str(error)))
        old = self.sessions.find(_cookie(request.headers))
        session = self.sessions.new()  # a new secret for a new right
        if old is not None:
            session.callers.update(old.callers)
            self.sessions.end(old)
        session.callers[api.key] = caller
        return _with_cookie(RedirectResponse(target, 303), session, request)

    def _log_out(self, request: Request, path: str) -> Response:
        if path != "/logout":
            return _notice(405, "Not allowed", "The console has pages only.")
        if (session := self.sessions.find(_cookie(request.headers))) is not None:
            self.access.leave(list(session.callers.values()))
            self.sessions.end(session)
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE)
        return response

    def _broker(self, key: str | None) -> BrokerApi | None:
        return self.brokers.get(key) if key else next(iter(self.brokers.values()))


def _cookie(headers: Headers) -> str | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return morsel.value if morsel else None


def _with_cookie(response: Response, session: Session, request: Request) -> Response:
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session.id, httponly=True, samesite="lax", secure=secure)
    return response


def _target(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _local(target: str | None) -> str:
    """A target that is surely on this server."""
    return target if target and target.startswith("/") and target[1:2] not in ("/", "\\") else "/"


async def _form(request: Request) -> dict[str, str]:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MAX_FORM:
            return {}
    fields: dict[str, Any] = parse_qs(content.decode("utf-8", "replace"), max_num_fields=10)
    return {name: values[0] for name, values in fields.items()}


def _html(status: int, content: bytes) -> Response:
    return Response(content, status, {"cache-control": "no-store"}, "text/html")


def _notice(status: int, title: str, text: str, reload_seconds: int | None = None) -> Response:
    return _html(status, notice_page(title, text, reload_seconds))


async def download(request: Request) -> Response:
    visit: Visit = request.scope["quire.visit"]
    query = request.query_params
    path = message_path(query.get("kind", ""), query.get("name", ""), query.get("of", ""), query.get("at", ""))
    caller = visit.session.callers[visit.api.key]
    answer = await visit.api.content(path + "/body", caller.authorization)
    headers = {"content-disposition": 'attachment; filename="message"', "cache-control": "no-store"}
    return Response(answer.content, answer.status_code, headers, "application/octet-stream")


def message_path(kind: str, name: str, of: str, at: str) -> str:
    """The path of a message in the API.

    ``of`` is the client id of a durable subscription, or the partition of a stream; ``at`` a sequence or an offset.
    """
    if kind == "durable":
        return path_of("durables", of, name, "messages", at)
    if kind == "stream":
        return path_of("streams", name, "partitions", of, "messages", at)
    return path_of("queues", name, "messages", at)
