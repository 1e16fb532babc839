"""One page in one browser: whose it is, its frame, its links, what it watches, what its user has chosen to see.

What a user has chosen is kept in a cookie of the browser, for all pages and later visits.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlencode

import msgspec
from nicegui import Client, ui
from nicegui.element import Element
from starlette.requests import Request

from quire.console import shown
from quire.console.elements import ICONS, block, notice, say
from quire.console.guard import Visit
from quire.console.session import BrokerApi, Caller, LoginNeeded, Pollers, Watch
from quire.errors import AccessRefused, QuireError

COOKIE = "quire_preferences"


class Preferences(msgspec.Struct, frozen=True):
    """The choices. What is not there, or is not valid, is as it comes."""

    theme: Literal["auto", "light", "dark"] = "auto"
    columns: dict[str, list[str]] = msgspec.field(default_factory=dict)  # those that are shown, by table
    rows: int = 50  # of a page of a table


def read_preferences(cookies: str) -> Preferences:
    try:
        morsel = SimpleCookie(cookies).get(COOKIE)
        return msgspec.json.decode(unquote(morsel.value), type=Preferences) if morsel else Preferences()
    except (CookieError, msgspec.MsgspecError, UnicodeError):
        return Preferences()


SECTIONS: list[tuple[str, list[tuple[str, str, str]]]] = [
    ("", [("overview", "Overview", "monitor"), ("topology", "Topology", "monitor")]),
    ("Destinations", [("queues", "Queues", ""), ("topics", "Topics", ""), ("streams", "Streams", "")]),
    ("Consumers", [("durables", "Durables", ""), ("groups", "Groups", ""), ("connections", "Connections", "")]),
    ("Work", [("schedule", "Schedule", ""), ("transactions", "Transactions", "")]),
    ("Access", [
        ("users", "Users", "administer"), ("rules", "Rules", "administer"), ("tokens", "Tokens", ""),
        ("policies", "Policies", "monitor"),
    ]),
    ("Broker", [("store", "Store", "monitor"), ("log", "Log", "monitor")]),
]  # fmt: skip
"""The navigation: titles, and their pages with the permission that shows them."""

NEEDS = {f"/{name}": permission for _, entries in SECTIONS for name, _, permission in entries}
"""The permission that a page needs, by its path."""

_THEMES = {
    "auto": ("brightness_auto", "As the system", None),
    "light": ("light_mode", "Light", False),
    "dark": ("dark_mode", "Dark", True),
}
"""Themes: their icons, what users read, and whether pages are dark."""

T = TypeVar("T")
Show = Callable[[dict[str, Any]], Awaitable[None] | None]


class Page:
    """What builders of pages work with; ``brokers`` are all those of the console, by their keys."""

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
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        if self.caller.api.key != next(iter(self.brokers)):
            given["broker"] = self.caller.api.key
        return path + (f"?{urlencode(given)}" if given else "")

    def go(self, path: str, **query: object) -> None:
        ui.navigate.to(self.link(path, **query))

    def remember(self, **query: str | int | None) -> None:
        """Put what the page shows into its address, so that the link can be shared."""
        self.client.run_javascript(f"quireAddress({json.dumps(query)})")

    # Rights.

    def may(self, permission: str) -> bool:
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
        return bool({"create", "manage"} & set(self.caller.who["may"]))

    # What it shows.

    @contextmanager
    def frame(self, title: str, here: str, *, crumbs: list[tuple[str, str]] | None = None) -> Iterator[Element]:
        """Top bar, navigation, title; what is made inside is the content. Gives the place for buttons beside the title.

        Args:
            title: what the page is about; text of clients is fine.
            crumbs: the pages above it: texts and links.
        """
        ui.page_title(f"{shown.text(title, 60)} · Quire")
        self._dark = ui.dark_mode(_THEMES[self.preferences.theme][2])
        with ui.left_drawer(value=False, fixed=True) as drawer:
            # With no value NiceGUI asks each browser whether there is room; the browser knows it by itself.
            drawer.props('show-if-above width=216 aria-label="Navigation"')
            self._navigation(here)
        with ui.header():
            say("Skip to the content", "a").props('href="#content"').classes("skip")
            ui.button(icon="menu", on_click=drawer.toggle).props(
                'flat dense round color=grey-6 aria-label="Navigation"'
            )
            ui.link("Quire", self.link("/")).classes("brand")
            block("space")
            if len(self.brokers) > 1:
                self._broker_switch(list(self.brokers))
            self._theme_menu(self.preferences.theme)
            self._user_menu(self.caller.who)
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

    def _navigation(self, here: str) -> None:
        for title, entries in SECTIONS:
            allowed = [entry for entry in entries if not entry[2] or self.may(entry[2])]
            if title and allowed:
                say(title, "div", "nav-title")
            for name, text, _ in allowed:
                path = "/" if name == "overview" else f"/{name}"
                with ui.element("a").classes("nav-link" + (" is-here" if name == here else "")) as link:
                    link.props["href"] = self.link(path)
                    if name == here:
                        link.props('aria-current="page"')
                    ui.icon(ICONS[name]).props('aria-hidden="true"')
                    say(text)

    def _broker_switch(self, keys: Sequence[str]) -> None:
        def switch(event: Any) -> None:
            first = event.value == keys[0]
            ui.navigate.to("/" if first else f"/?broker={event.value}")

        select = ui.select(list(keys), value=self.caller.api.key, on_change=switch)
        select.props('dense outlined options-dense aria-label="Broker"').classes("broker-switch")

    def _theme_menu(self, chosen: str) -> None:
        icon = _THEMES[chosen][0]
        with (
            ui.button(icon=icon).props('flat dense round color=grey-6 aria-label="Light or dark"') as button,
            ui.menu(),
        ):
            for theme, (theme_icon, text, _) in _THEMES.items():
                with ui.menu_item(on_click=lambda theme=theme: self._choose(theme, button)), block("row line"):
                    ui.icon(theme_icon)
                    say(text)

    def _choose(self, theme: str, button: ui.button) -> None:
        icon, _, self._dark.value = _THEMES[theme]
        button.props(f"icon={icon}")
        ui.run_javascript(f"quirePreference('theme', '{theme}')")

    def _user_menu(self, who: dict[str, Any]) -> None:
        name = who.get("name") or who.get("user")
        if not name or self.caller.authorization is None:
            return
        with ui.button(icon="account_circle").props('flat dense round color=grey-6 aria-label="Account"'), ui.menu():
            with block("").style("padding: 10px 14px"):
                say(shown.text(name, 60), "div")
                say(", ".join([shown.text(role) for role in who.get("roles", [])]) or "no role", "div", "mute small")
            ui.separator()
            with ui.element("form").props('method="post" action="/logout"'):
                say("Log out", "button", "log-out")

    def failed(self, error: QuireError) -> None:
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
        return await self.caller.call("GET", path, **query)

    async def attempt(self, call: Awaitable[T]) -> T | None:
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
        for watch in self._watches:
            watch.close()
        self._watches.clear()


def subject_link(page: Page, kind: str, name: str | None) -> str | None:
    """The page about a thing, by its kind and name as the API has them; None if there is none.

    Args:
        kind: ``queue``, ``topic``, ``stream``, ``durable``, ``group`` or ``broker``.
        name: its name: ``CLIENT/NAME`` of a durable subscription, ``STREAM/GROUP`` of a group.
    """
    if kind in ("queue", "topic", "stream") and name:
        return page.link(f"/{kind}", name=name)
    first, slash, second = (name or "").partition("/")
    if kind == "durable" and slash:
        return page.link("/durable", client=first, name=second)
    if kind == "group" and slash:
        return page.link("/group", stream=first, name=second)
    return page.link("/store") if kind == "broker" else None


def destination_link(page: Page, destination: str) -> str | None:
    kind, colon, name = destination.partition("://")
    return subject_link(page, kind, name) if colon else None
