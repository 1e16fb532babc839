"""What a user has chosen to see: kept in a cookie of the browser, for all pages and later visits."""

from http.cookies import CookieError, SimpleCookie
from typing import Literal
from urllib.parse import unquote

import msgspec

COOKIE = "quire_preferences"


class Preferences(msgspec.Struct, frozen=True):
    """The choices. What is not there, or is not valid, is as it comes."""

    theme: Literal["auto", "light", "dark"] = "auto"
    columns: dict[str, list[str]] = msgspec.field(default_factory=dict)  # those that are shown, by table
    rows: int = 50  # of a page of a table

    @property
    def dark(self) -> bool | None:
        """Whether pages are dark; None follows the system."""
        return {"auto": None, "light": False, "dark": True}[self.theme]


def read_preferences(cookies: str) -> Preferences:
    """The choices in a request's header Cookie."""
    try:
        morsel = SimpleCookie(cookies).get(COOKIE)
        return msgspec.json.decode(unquote(morsel.value), type=Preferences) if morsel else Preferences()
    except (CookieError, msgspec.MsgspecError, UnicodeError):
        return Preferences()
