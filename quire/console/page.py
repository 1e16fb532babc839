"""One page in one browser: whose it is, its frame, what it watches."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from nicegui import Client, ui
from nicegui.element import Element
from starlette.requests import Request

from quire.console import shown
from quire.console.broker_api import BrokerApi, LoginNeeded
from quire.console.elements import block, notice, say
from quire.console.guard import Visit
from quire.console.navigation import Frame
from quire.console.poller import Pollers, Watch
from quire.console.preferences import read_preferences
from quire.console.session import Caller
from quire.errors import AccessRefused, QuireError

Show = Callable[[dict[str, Any]], Awaitable[None] | None]


class Page:
    """What builders of pages work with.

    Args:
        brokers: all brokers of the console, by their keys.
        pollers: what asks them.
        request: the request for the page.
    """

    def __init__(self, brokers: Mapping[str, BrokerApi], pollers: Pollers, request: Request) -> None:
        visit: Visit = request.scope["quire.visit"]
        self.brokers = brokers
        self.session = visit.session
        self.caller: Caller = visit.session.callers[visit.api.key]
        self.preferences = read_preferences(request.headers.get("cookie", ""))
        self.query: dict[str, str] = dict(request.query_params)
        self.path = request.url.path
        self._pollers = pollers
        self._watches: list[Watch] = []
        self._trouble: Element | None = None
        self._is_connected = self._is_visible = False
        self.client: Client = ui.context.client
        self.client.on_connect(lambda: self._seen(connected=True))
        self.client.on_disconnect(lambda: self._seen(connected=False))
        self.client.on_delete(self._left)
        ui.on("quire-seen", lambda event: self._seen(visible=bool(event.args.get("seen"))), ["seen"])
        self._is_visible = True

    # Links.

    def link(self, path: str, **query: object) -> str:
        """The link to a page of the same broker."""
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        if self.caller.api.key != next(iter(self.brokers)):
            given["broker"] = self.caller.api.key
        return path + (f"?{urlencode(given)}" if given else "")

    def go(self, path: str, **query: object) -> None:
        """Have the browser go to another page."""
        ui.navigate.to(self.link(path, **query))

    def remember(self, **query: str | int | None) -> None:
        """Put what the page shows into its address, so that the link can be shared."""
        self.client.run_javascript(f"quireAddress({json.dumps(query)})")

    # Rights.

    def may(self, permission: str) -> bool:
        """Whether the user has a permission for the broker as a whole: monitor, operate, administer."""
        return permission in self.caller.permissions

    def require(self, permission: str) -> None:
        """Refuse the page to who has not the permission; the broker refuses its calls too."""
        if permission and not self.may(permission):
            raise AccessRefused(f"this page is for users who may {permission}", permission=permission)

    async def rights(self, kind: str, name: str) -> frozenset[str]:
        """What the user may do with a destination: read, write, create, manage."""
        who = await self.get("/whoami", destination=f"{kind}://{name}")
        return frozenset(who["may"])

    def may_create(self) -> bool:
        """Whether the user may make destinations, of some names at least."""
        return bool({"create", "manage"} & set(self.caller.who["may"]))

    # What it shows.

    @contextmanager
    def frame(self, title: str, here: str, *, crumbs: list[tuple[str, str]] | None = None) -> Iterator[Element]:
        """The frame of the page; what is made inside is its content. Gives the place for buttons beside the title.

        Args:
            title: what the page is about; text of clients is fine.
            here: the entry of the navigation it belongs to.
            crumbs: the pages above it: texts and links.
        """
        ui.page_title(f"{shown.text(title, 60)} · Quire")
        Frame(here, self.link, self.caller, list(self.brokers), self.preferences)
        with block("page", "main").props('id="content"'):
            with block("page-head"):
                for text, link in crumbs or []:
                    ui.link(text, link).classes("crumb")
                    say("/", classes="crumb").props('aria-hidden="true"')
                say(shown.text(title), "h1")
                head = block("row line")
                block("space")
            with block("") as self._trouble:
                pass
            yield head

    def failed(self, error: QuireError) -> None:
        """Show why the page cannot be shown."""
        if self._trouble is None:
            with self.frame("This cannot be shown", ""):
                notice(shown.text(str(error), 1000), error.entry.advice, "bad")
            return
        self._tell(error)

    def _tell(self, error: QuireError | None) -> None:
        """Show above the content why there is nothing newer, until there is."""
        if isinstance(error, LoginNeeded):
            self.session.forget(self.caller)
            ui.navigate.to(self.link("/login", next=self.path + "?" + urlencode(self.query)))
        assert self._trouble is not None
        if error is None and not self._trouble.default_slot.children:
            return
        self._trouble.clear()
        if error is not None:
            with self._trouble:
                notice(shown.text(str(error), 1000), error.entry.advice, "bad")

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        """Ask the broker once."""
        return await self.caller.call("GET", path, **query)

    async def attempt(self, call: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
        """Make a call for a user who waits; an error is told, and gives None."""
        try:
            return await call
        except QuireError as error:
            if isinstance(error, LoginNeeded):
                self._tell(error)
            ui.notify(shown.text(f"{error}. {error.entry.advice}", 600), type="negative", multi_line=True, timeout=9000)
            return None

    # What it watches.

    def watch(self, path: str, seconds: float, show: Show, **query: object) -> Watch:
        """Ask the broker every some seconds while the page is seen, and show each answer."""

        def take(answer: dict[str, Any] | QuireError) -> None:
            self.client.safe_invoke(lambda: self._show(show, answer))

        watch = self._pollers.watch(self.caller, path, query, seconds, take)
        self._watches.append(watch)
        watch.show(self._is_connected and self._is_visible)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Ask no more."""
        watch.close()
        self._watches.remove(watch)

    def _show(self, show: Show, answer: dict[str, Any] | QuireError) -> Awaitable[None] | None:
        if isinstance(answer, QuireError):
            self._tell(answer)
            return None
        self._tell(None)
        return show(answer)

    def _seen(self, *, connected: bool | None = None, visible: bool | None = None) -> None:
        self._is_connected = self._is_connected if connected is None else connected
        self._is_visible = self._is_visible if visible is None else visible
        for watch in self._watches:
            watch.show(self._is_connected and self._is_visible)

    def _left(self) -> None:
        """The page is closed."""
        for watch in self._watches:
            watch.close()
        self._watches.clear()
