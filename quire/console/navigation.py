"""The frame around all pages: the top bar, and the navigation at the side."""

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from quire.console import shown
from quire.console.elements import block, say
from quire.console.preferences import Preferences
from quire.console.session import Caller
from quire.console.theme import ICONS

SECTIONS: list[tuple[str, list[tuple[str, str, str]]]] = [
    ("", [("overview", "Overview", "monitor"), ("topology", "Topology", "monitor")]),
    ("Destinations", [("queues", "Queues", ""), ("topics", "Topics", ""), ("streams", "Streams", "")]),
    (
        "Consumers",
        [
            ("durables", "Durables", ""), ("groups", "Groups", ""),
            ("connections", "Connections", ""),
        ],
    ),
    ("Work", [("schedule", "Schedule", ""), ("transactions", "Transactions", "")]),
    (
        "Access",
        [
            ("users", "Users", "administer"), ("rules", "Rules", "administer"), ("tokens", "Tokens", ""),
            ("policies", "Policies", "monitor"),
        ],
    ),
    ("Broker", [("store", "Store", "monitor"), ("log", "Log", "monitor")]),
]  # fmt: skip
"""The navigation: titles, and their pages with the permission that shows them."""

NEEDS = {f"/{name}": permission for _, entries in SECTIONS for name, _, permission in entries}
"""The permission that a page needs, by its path."""

_THEMES = {
    "auto": ("brightness_auto", "As the system"),
    "light": ("light_mode", "Light"),
    "dark": ("dark_mode", "Dark"),
}


class Frame:
    """The top bar and the navigation of one page.

    Args:
        here: the entry of the navigation that the page belongs to.
        link: makes the link to a page.
        caller: the user.
        brokers: the names of all brokers.
        preferences: what the user has chosen to see.
    """

    def __init__(
        self, here: str, link: Callable[[str], str], caller: Caller, brokers: Sequence[str], preferences: Preferences
    ) -> None:
        self._link = link
        self._caller = caller
        self._dark = ui.dark_mode(preferences.dark)
        with ui.left_drawer(value=False, fixed=True) as drawer:
            # With no value NiceGUI asks each browser whether there is room; the browser knows it by itself.
            drawer.props('show-if-above width=216 aria-label="Navigation"')
            self._navigation(here)
        with ui.header():
            TextElement(tag="a", text="Skip to the content").props('href="#content"').classes("skip")
            ui.button(icon="menu", on_click=drawer.toggle).props(
                'flat dense round color=grey-6 aria-label="Navigation"'
            )
            ui.link("Quire", link("/")).classes("brand")
            block("space")
            if len(brokers) > 1:
                self._broker_switch(brokers)
            self._theme_menu(preferences.theme)
            self._user_menu(caller.who)

    def _navigation(self, here: str) -> None:
        for title, entries in SECTIONS:
            allowed = [entry for entry in entries if not entry[2] or entry[2] in self._caller.permissions]
            if title and allowed:
                say(title, "div", "nav-title")
            for name, text, _ in allowed:
                path = "/" if name == "overview" else f"/{name}"
                with ui.element("a").classes("nav-link" + (" is-here" if name == here else "")) as link:
                    link.props["href"] = self._link(path)
                    if name == here:
                        link.props('aria-current="page"')
                    ui.icon(ICONS[name]).props('aria-hidden="true"')
                    say(text)

    def _broker_switch(self, keys: Sequence[str]) -> None:

        def switch(event: Any) -> None:
            first = event.value == keys[0]
            ui.navigate.to("/" if first else f"/?broker={event.value}")

        select = ui.select(list(keys), value=self._caller.api.key, on_change=switch)
        select.props('dense outlined options-dense aria-label="Broker"').classes("broker-switch")

    def _theme_menu(self, chosen: str) -> None:
        icon = _THEMES[chosen][0]
        with (
            ui.button(icon=icon).props('flat dense round color=grey-6 aria-label="Light or dark"') as button,
            ui.menu(),
        ):
            for theme, (theme_icon, text) in _THEMES.items():
                with ui.menu_item(on_click=lambda theme=theme: self._choose(theme, button)), block("row line"):
                    ui.icon(theme_icon)
                    say(text)

    def _choose(self, theme: str, button: ui.button) -> None:
        self._dark.value = {"auto": None, "light": False, "dark": True}[theme]
        button.props(f"icon={_THEMES[theme][0]}")
        ui.run_javascript(f"quirePreference('theme', '{theme}')")

    def _user_menu(self, who: dict[str, Any]) -> None:
        name = who.get("name") or who.get("user")
        if not name or self._caller.authorization is None:
            return
        with ui.button(icon="account_circle").props('flat dense round color=grey-6 aria-label="Account"'), ui.menu():
            with block("").style("padding: 10px 14px"):
                say(shown.text(name, 60), "div")
                say(", ".join([shown.text(role) for role in who.get("roles", [])]) or "no role", "div", "mute small")
            ui.separator()
            with ui.element("form").props('method="post" action="/logout"'):
                say("Log out", "button", "log-out")
