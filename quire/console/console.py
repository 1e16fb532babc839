"""The console: brokers, sessions, pollers, and the pages mounted on NiceGUI."""

from collections.abc import Sequence

import httpx
import nicegui
from fastapi import FastAPI
from nicegui import Client, app, background_tasks, core, ui
from starlette.requests import Request
from starlette.types import ASGIApp

from quire.clock import Clock
from quire.console.elements import HEAD, STYLE
from quire.console.guard import ICON, Guard, Visit, download
from quire.console.page import NEEDS, Page
from quire.console.pages import PAGES, Build
from quire.console.session import Access, BrokerApi, ConsoleTls, Pollers, Session, Sessions
from quire.errors import InvalidArgument, QuireError

BUILD_LIMIT = 30.0  # how long a page may take to be built, in seconds: it waits for the broker's answers
RECONNECT_LIMIT = 10.0  # for how many seconds a page is kept when its browser is gone


class Console:
    """One console, for the brokers whose HTTP APIs it is given; the first one is shown at first."""

    def __init__(
        self, urls: Sequence[str], clock: Clock, transport: httpx.AsyncBaseTransport | None = None,
        tls: ConsoleTls | None = None,
    ) -> None:  # fmt: skip
        self.brokers = {api.key: api for api in [BrokerApi(url, transport, tls) for url in urls]}
        if not self.brokers:
            raise InvalidArgument("a console needs the URL of at least one broker")
        self.sessions = Sessions(clock, self._ended)
        self.pollers = Pollers()
        self.access = Access()

    def mount(self) -> None:
        """Make the pages known to NiceGUI, of which a process has one."""
        app.config.socket_io_js_transports = ["websocket"]
        ui.add_head_html(HEAD, shared=True)
        ui.add_css(STYLE, shared=True)
        for path, build in PAGES.items():
            self._mount_page(path, build)
        app.get("/download", include_in_schema=False)(download)

    def _mount_page(self, path: str, build: Build) -> None:
        @ui.page(path, title="Quire", response_timeout=BUILD_LIMIT, reconnect_timeout=RECONNECT_LIMIT)
        async def show(request: Request) -> None:
            page = Page(self.brokers, self.pollers, request)
            try:
                page.require(NEEDS.get(path, ""))
                await build(page)
            except QuireError as error:
                page.failed(error)

    def application(self, host: str, *, allow_open: bool, names: str = "") -> ASGIApp:
        """The application for a server that listens on a host: the pages behind their guard."""
        inner = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        ui.run_with(inner, title="Quire", favicon=ICON, dark=None, tailwind=False, show_welcome_message=False)
        version = nicegui.__version__
        folders = ("static", "libraries", "components", "resources", "dynamic_resources", "esm")
        static = tuple([f"/_nicegui/{version}/{folder}/" for folder in folders])
        return Guard(
            app=inner, brokers=self.brokers, sessions=self.sessions, access=self.access, pages=[*PAGES, "/download"],
            static=static, clients=lambda: len(Client.instances), host=host, allow_open=allow_open, names=names,
        )  # fmt: skip

    def _ended(self, session: Session) -> None:
        for client in list(Client.instances.values()):
            request = client._request  # one that has none raises at its property
            visit: Visit | None = request.scope.get("quire.visit") if request else None
            if visit is not None and visit.session is session:
                background_tasks.create(core.sio.emit("open", {"path": "/login", "new_tab": False}, room=client.id))
                for document in list(client._delete_tasks):  # a page that was left is deleted now, and not again
                    client._cancel_delete_task(document)
                client.delete()

    async def close(self) -> None:
        for api in self.brokers.values():
            await api.close()
