"""What a setting is: its type, its declaration, and the value it has from somewhere.

A kind says how a value is read from a text or from TOML, how it is checked, and how it is written back.
"""

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from quire.destination import queue
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings, QuireError
from quire.units import parse_duration, parse_size

_SIZES = {"TB": 10**12, "TiB": 2**40, "GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20, "kB": 1000, "KiB": 1024}
_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
"""Of signatures with a public key; with a shared secret, who can check a token can make one."""

_DURATIONS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


def _literal(value: str | float) -> str:
    # JSON and TOML write these alike, but for the one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class Kind(NamedTuple):
    """What a key's value may be."""

    allowed: str  # what may be written, for people
    parse: Callable[[object], Any]  # reads a value from a file, a variable or a flag; raises ValueError
    write: Callable[[Any], str] = _literal  # writes a value as TOML


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, for this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def is_own_name(written: str, bound: str, names: str) -> bool:
    """Whether a header ``Host`` names a server by its address, as ``localhost``, or by one of its names.

    Any other name may be that of a page elsewhere, which has it point here to be let in as a page of this server.

    Args:
        bound: the host where the server listens; on loopback no other addresses are its own.
        names: separated by spaces.
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


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _address(value: object) -> str:
    split_address(_text(value))
    return _text(value)


def _accepted(value: object, *checks: Callable[[str], object]) -> str:
    text = _text(value)
    try:
        for check in checks:
            check(text)
    except InvalidDestination as error:
        raise ValueError(str(error)) from error
    return text


def _affix(value: object) -> str:
    return _accepted(value, lambda text: queue(text + "x"), lambda text: queue("x" + text))


def _virtual_prefix(value: object) -> str:
    if not _text(value).endswith("."):
        raise ValueError(value)
    return _accepted(value, lambda text: Pattern(text + "x"))


def _durations(value: object) -> str:
    for part in _text(value).split():
        if not math.isfinite(parse_duration(part)):
            raise ValueError(value)
    return " ".join(_text(value).split())


def _flag(value: object) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if found is None:
        raise ValueError(value)
    return found


def _exact(amount: int, units: Mapping[str, int], smallest: str) -> str:
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if amount and amount % factor == 0:
            return json.dumps(f"{amount // factor}{unit}")
    return json.dumps(f"{amount}{smallest if amount else ''}")


def _written_duration(seconds: float) -> str:
    exact = Decimal(repr(seconds))
    milliseconds = exact * 1000
    return _exact(int(milliseconds), _DURATIONS, "ms") if milliseconds % 1 == 0 else f'"{exact:f}s"'


def _time_of_day(value: object) -> str:
    found = re.fullmatch(r"([01]\d|2[0-3])(:[0-5]\d){1,2}|", _text(value))
    if found is None:
        raise ValueError(value)
    return _text(value)


def _number(value: object) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    return value


def _at_least(minimum: float, parse: Callable[[Any], Any]) -> Callable[[object], Any]:
    return _between(minimum, math.inf, parse)


def _between(minimum: float, maximum: float, parse: Callable[[Any], Any]) -> Callable[[object], Any]:
    def bounded(value: object) -> Any:
        number = parse(_number(value))
        if not minimum <= number <= maximum or math.isinf(number):
            raise ValueError(value)
        return number

    return bounded


def count(minimum: int) -> Kind:
    """Whole numbers from a minimum on."""
    return Kind(f"a whole number, at least {minimum}", _at_least(minimum, lambda value: int(str(value))))


def factor(minimum: float) -> Kind:
    """Numbers from a minimum on."""
    return Kind(f"a number, at least {minimum:g}", _at_least(minimum, float))


def fraction() -> Kind:
    """Numbers from 0 to 1."""

    def parse(value: object) -> float:
        number = float(_number(value))
        if not 0 <= number <= 1:
            raise ValueError(value)
        return number

    return Kind("a number from 0 to 1", parse)


def size(minimum: int, maximum: float = math.inf) -> Kind:
    """Sizes in bytes, from a minimum to a maximum."""
    most = "" if math.isinf(maximum) else f", at most {json.loads(_exact(int(maximum), _SIZES, 'B'))}"
    allowed = f"a size such as 1024, 64MB or 1GiB, at least {minimum}{most}"
    return Kind(allowed, _between(minimum, maximum, parse_size), lambda size: _exact(size, _SIZES, "B"))


def duration(minimum: float) -> Kind:
    """Durations in seconds, from a minimum on."""
    allowed = "a duration such as 500ms, 30s, 5m, 1h or 7d" + (f", at least {minimum:g} s" if minimum else "")
    return Kind(allowed, _at_least(minimum, parse_duration), _written_duration)


def unless_none(kind: Kind) -> Kind:
    """What a kind allows, or -1 for none."""

    def parse(value: object) -> Any:
        none = not isinstance(value, bool) and value in (-1, "-1")
        return -1.0 if none else kind.parse(value)

    return Kind(f"{kind.allowed}, or -1 for none", parse, lambda value: "-1" if value == -1 else kind.write(value))


def choice(*words: str) -> Kind:
    """One of some words."""

    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(value)
        return str(value)

    return Kind("one of " + ", ".join(words), parse)


def _algorithms(value: object) -> str:
    names = _text(value).split()
    if not names or not set(names) <= _ALGORITHMS:
        raise ValueError(value)
    return " ".join(names)


TEXT = Kind("a text", _text)
ALGORITHMS = Kind("some of " + ", ".join(sorted(_ALGORITHMS)) + ", separated by spaces", _algorithms)
DURATIONS = Kind("durations such as 10s 30s 1m, separated by spaces, or empty", _durations)
ADDRESS = Kind("HOST:PORT or [IPV6]:PORT, port 0 for a free one", _address)
TIME_OF_DAY = Kind("a time of the day, HH:MM or HH:MM:SS in the time zone of the machine, or empty", _time_of_day)
SWITCH = Kind("true or false", _flag)
QUEUE_NAME = Kind("the name of a queue", lambda value: _accepted(value, queue))
AFFIX = Kind("the beginning or the end of a destination's name, or empty", _affix)
PATTERN = Kind("a pattern such as VirtualTopic.>", lambda value: _accepted(value, Pattern))
VIRTUAL_PREFIX = Kind("a pattern that ends in a dot, such as Consumer.*.", _virtual_prefix)


Entry = TypeVar("Entry")
Refused = Callable[[QuireError], None]
"""Is told a fault of the settings: raises it, or keeps it and has the reading go on."""

MOST_SHOWN = 1000
"""How many characters of a value an error shows."""


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
            text, data = shown(value)
            raise InvalidSettings(
                f"{self.name} = {text} ({origin}) is not allowed: {self.kind.allowed}",
                key=self.name, value=data, origin=origin,
            ) from error  # fmt: skip


def shown(value: object) -> tuple[str, object]:
    """A value as an error shows it, and as its data has it: Python writes no numbers of thousands of digits."""
    try:
        return repr(value)[:MOST_SHOWN], value
    except ValueError:
        text = hex(value)[:MOST_SHOWN] if isinstance(value, int) else "a number of too many digits"
        return text, text


def declare(default: Any, kind: Kind, text: str) -> Any:
    """A field of a section's dataclass: a setting with its default, what it may be, and what it is for."""
    return field(default=default, metadata={"kind": kind, "text": text})


def keys_of(section: Any, prefix: str = "") -> Iterator[Key]:
    """The settings that a dataclass declares, in its order; ``prefix`` is its section with a dot."""
    for part in fields(section):
        if "kind" in part.metadata:
            yield Key(prefix + part.name, part.default, part.metadata["kind"], part.metadata["text"])


def unknown(name: str, origin: str, known: Iterable[str]) -> InvalidSettings:
    """The error for an unknown key, with the known one that may have been meant."""
    names = list(known)
    lasts = {key.rpartition(".")[2]: key for key in reversed(names)}
    near = difflib.get_close_matches(name, names, n=1) or [
        lasts[last] for last in difflib.get_close_matches(name.rpartition(".")[2], lasts, n=1)
    ]
    hint = f"did you mean {near[0]}?" if near else "`quire config init -` prints all settings"
    return InvalidSettings(f"{name} ({origin}) is not a setting; {hint}", key=name, origin=origin)


def throw(error: QuireError) -> None:
    """Raise an error: what happens to a fault unless a caller gathers all of them."""
    raise error


def entries_of(
    value: object, name: str, origin: str, read: Callable[[dict[str, Any], int], Entry], refused: Refused = throw
) -> list[Entry]:
    """Read an array of tables.

    Args:
        value: what stands in the file.
        name: of the array.
        origin: ``file NAME``.
        read: reads an entry, with its number, from 1 on; it may raise ``InvalidSettings``.
        refused: called with each fault; its entry is left out.
    """
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
