"""What a setting is: its declaration, and the value it has from somewhere; addresses, and names of destinations.

An error says all at once: the key, the value, where it is from, and what is allowed.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from quire.destination import queue
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings, QuireError
from quire.options import Kind, nearest, options_of, text_of
from quire.units import parse_duration

_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
"""Of signatures with a public key; with a shared secret, who can check a token can make one."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, for this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def is_own_name(written: str, bound: str, names: str) -> bool:
    """Whether a header ``Host`` names a server by its address, as ``localhost``, or by one of its names.

    Any other name may be that of a page elsewhere, which has it point here to be let in as a page of this server. For a
    server that is ``bound`` to loopback no other addresses are its own.
    """
    try:
        host = (urlsplit(f"//{written}").hostname or "").removesuffix(".")
        if host in names.lower().split() or is_loopback(host):
            return True
        ipaddress.ip_address(host)
    except ValueError:  # another name, or nothing that makes sense
        return False
    return not is_loopback(bound)


def local_host(host: str) -> str:
    """Where a listener of a host is reached on this machine: one that listens everywhere, on loopback."""
    return "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared with, not bound to


def split_address(text: str) -> tuple[str, int]:
    """The host, without brackets, and the port of ``127.0.0.1:61613`` or ``[::1]:61613``; no host: all interfaces."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not an address: write HOST:PORT or [IPV6]:PORT")
    return host[1:-1] if bracketed else host, int(port)


def _address(value: object) -> str:
    split_address(text_of(value))
    return text_of(value)


def _accepted(value: object, *checks: Callable[[str], object]) -> str:
    text = text_of(value)
    try:
        for check in checks:
            check(text)
    except InvalidDestination as error:
        raise ValueError(str(error)) from error
    return text


def _affix(value: object) -> str:
    return _accepted(value, lambda text: queue(text + "x"), lambda text: queue("x" + text))


def _virtual_prefix(value: object) -> str:
    if not text_of(value).endswith("."):
        raise ValueError(value)
    return _accepted(value, lambda text: Pattern(text + "x"))


def _durations(value: object) -> str:
    for part in text_of(value).split():
        if not math.isfinite(parse_duration(part)):
            raise ValueError(value)
    return " ".join(text_of(value).split())


def _time_of_day(value: object) -> str:
    found = re.fullmatch(r"([01]\d|2[0-3])(:[0-5]\d){1,2}|", text_of(value))
    if found is None:
        raise ValueError(value)
    return text_of(value)


def _algorithms(value: object) -> str:
    names = text_of(value).split()
    if not names or not set(names) <= _ALGORITHMS:
        raise ValueError(value)
    return " ".join(names)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


FLAG = Kind("true or false", _flag)  # what an entry of an array of tables says: unlike a key, it is never set by a text

Algorithms = Annotated[str, Kind("some of " + ", ".join(sorted(_ALGORITHMS)) + ", separated by spaces", _algorithms)]
Durations = Annotated[str, Kind("durations such as 10s 30s 1m, separated by spaces, or empty", _durations)]
Address = Annotated[str, Kind("HOST:PORT or [IPV6]:PORT, port 0 for a free one", _address)]
TimeOfDay = Annotated[
    str, Kind("a time of the day, HH:MM or HH:MM:SS in the time zone of the machine, or empty", _time_of_day)
]
QueueName = Annotated[str, Kind("the name of a queue", lambda value: _accepted(value, queue))]
Affix = Annotated[str, Kind("the beginning or the end of a destination's name, or empty", _affix)]
PatternText = Annotated[str, Kind("a pattern such as VirtualTopic.>", lambda value: _accepted(value, Pattern))]
VirtualPrefix = Annotated[str, Kind("a pattern that ends in a dot, such as Consumer.*.", _virtual_prefix)]


Entry = TypeVar("Entry")
Refused = Callable[[QuireError], None]
"""Is told a fault of the settings: raises it, or keeps it and has the reading go on."""

MOST_SHOWN = 1000  # how many characters of a value an error shows


class Setting(NamedTuple):
    """The value of a setting; its origin is a text such as ``default``, ``file NAME`` or ``environment NAME``."""

    key: str
    value: Any
    origin: str


class Key(NamedTuple):
    """One setting's declaration."""

    name: str  # ``section.key``, or only ``key`` at the top of the file
    default: Any  # its value if it is not set
    kind: Kind  # what it may be
    text: str  # what it is for

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "QUIRE_" + self.name.replace(".", "__").upper()

    def read(self, value: object, origin: str) -> Setting:
        """Read a value; ``InvalidSettings`` has ``key``, ``value`` and ``origin``."""
        try:
            return Setting(self.name, self.kind.parse(value), origin)
        except (ValueError, ArithmeticError) as error:
            raise not_allowed(self.name, value, origin, self.kind.allowed) from error


def shown(value: object) -> tuple[str, object]:
    """A value as an error shows it, and as its data has it: Python writes no numbers of thousands of digits."""
    try:
        return repr(value)[:MOST_SHOWN], value
    except ValueError:
        text = hex(value)[:MOST_SHOWN] if isinstance(value, int) else "a number of too many digits"
        return text, text


def keys_of(described: Any) -> Iterator[Key]:
    """The settings that a dataclass describes, in its order, by their attributes."""
    return (Key(part.attribute, part.default, part.kind, part.text) for part in options_of(described))


def unknown(name: str, origin: str, known: Iterable[str]) -> InvalidSettings:
    """The error for an unknown key, with the known one that may have been meant."""
    names = list(known)
    lasts = {key.rpartition(".")[2]: key for key in reversed(names)}
    near = nearest(name, names) or lasts.get(nearest(name.rpartition(".")[2], lasts))
    hint = f"did you mean {near}?" if near else "`quire config init -` prints all settings"
    return InvalidSettings(f"{name} ({origin}) is not a setting; {hint}", key=name, origin=origin)


def not_allowed(name: str, value: object, origin: str, allowed: str, key: str = "") -> InvalidSettings:
    """The error for a value; its data has ``key``, ``value`` and ``origin``."""
    text, data = shown(value)
    return InvalidSettings(
        f"{name} = {text} ({origin}) is not allowed: {allowed}", key=key or name, value=data, origin=origin
    )


def throw(error: QuireError) -> None:
    """Raise an error: what happens to a fault unless a caller gathers all of them."""
    raise error


def entries_of(
    value: object, name: str, origin: str, read: Callable[[dict[str, Any], int], Entry], refused: Refused = throw
) -> list[Entry]:
    """Read an array of tables; ``read`` gets each entry with its number, from 1 on. One with a fault is left out."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        text = f"{name} ({origin}) have another form: begin each entry with [[{name}]]"
        refused(InvalidSettings(text, key=name, origin=origin))
        return []
    found = []
    for number, table in enumerate(value, 1):
        try:
            found.append(read(table, number))
        except InvalidSettings as error:
            refused(error)
    return found


def read_table(kinds: Mapping[str, Kind], table: Mapping[str, Any], origin: str, array: str = "") -> dict[str, Any]:
    """The values of an entry of an array of tables, as their kinds read them; ``array`` precedes an error's ``key``."""
    found = {}
    for name, value in table.items():
        if name not in kinds:
            raise unknown(name, origin, kinds)
        try:
            found[name] = kinds[name].parse(value)
        except (InvalidDestination, ValueError) as error:
            why = str(error) if isinstance(error, InvalidDestination) else kinds[name].allowed
            raise not_allowed(name, value, origin, why, array + name) from error
    return found
