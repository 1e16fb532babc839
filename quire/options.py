"""Options, described once: the settings of a broker, those of the data source for Spark, those in a client's URLs.

A class of options is a dataclass. The annotation of a field says what its value may be: ``bool``, a ``Literal``, a
number with its bounds (``Positive``), or anything with a ``Kind`` (``Seconds``). ``option`` adds default and meaning.
From that come how a value is read from a text, from TOML or from an argument, what an error says is allowed, how the
value is written back, and the reference.
"""

import difflib
import json
import math
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from quire.units import parse_duration, parse_size

T = TypeVar("T")

_SIZES = {"TB": 10**12, "TiB": 2**40, "GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20, "kB": 1000, "KiB": 1024}
_DURATIONS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


def _literal(value: str | float) -> str:
    # JSON and TOML write these alike, but for the one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class Kind(NamedTuple):
    allowed: str  # what may be written, for people
    parse: Callable[[object], Any]  # reads a value from a file, a variable, a flag or a URL; raises ValueError
    write: Callable[[Any], str] = _literal  # writes a value as TOML


class Option(NamedTuple):
    attribute: str  # the field
    name: str  # as Spark and URLs write it: ``maxBytes`` for ``max_bytes``, unless the field says otherwise
    default: Any
    kind: Kind
    text: str  # what it is for
    uses: tuple[Any, ...]  # for what it may be given


def option(default: Any, text: str = "", *, name: str = "", uses: tuple[Any, ...] = (), is_secret: bool = False) -> Any:
    return field(default=default, repr=not is_secret, metadata={"text": text, "name": name, "uses": uses})


def options_of(described: Any) -> Iterator[Option]:
    """In their order; those of a nested one have dotted names."""
    for part in fields(described):
        about = part.metadata
        name = about.get("name") or camel_case(part.name)
        if "text" in about:
            yield Option(part.name, name, part.default, kind_of(part.type), about["text"], about["uses"])
        elif is_dataclass(part.type):
            for inner in options_of(part.type):
                yield inner._replace(attribute=f"{part.name}.{inner.attribute}", name=f"{name}.{inner.name}")


def made(described: type[T], values: Mapping[str, Any]) -> T:
    own = {name: value for name, value in values.items() if "." not in name}
    parts: tuple[Any, ...] = fields(described)  # type: ignore[arg-type]
    nested: dict[str, Any] = {part.name: part.type for part in parts if is_dataclass(part.type)}
    for name, kind in nested.items():
        inner = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
        own |= {name: made(kind, inner)} if inner else {}
    return described(**own)


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join([word.capitalize() for word in rest])


def nearest(name: str, known: Collection[str]) -> str:
    """The known name that may have been meant; empty if none is near."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")


def kind_of(annotation: Any) -> Kind:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):  # with None, which is never written
        return kind_of(parts[0])
    if origin is Literal:
        return _choice(*parts)
    if origin is Annotated:
        return next((part for part in parts if isinstance(part, Kind)), None) or _bounded(annotation, *parts)
    return {str: TEXT, bool: SWITCH}.get(annotation) or _bounded(annotation, annotation)


def _bounded(annotation: Any, number: type, meta: msgspec.Meta | None = None) -> Kind:
    def parse(value: object) -> Any:
        found = msgspec.convert(value.strip() if isinstance(value, str) else value, annotation, strict=False)
        if math.isinf(found):
            raise ValueError(value)
        return found

    allowed = "a whole number" if number is int else "a number"
    if meta is not None:
        allowed += f", at least {meta.ge:g}" if meta.le is None else f" from {meta.ge} to {meta.le}"
    return Kind(allowed, parse)


def _choice(*words: str) -> Kind:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(value)
        return str(value)

    return Kind("one of " + ", ".join(words), parse)


def text_of(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def checked_flag(value: object) -> bool:
    """True or false, of what TOML, a variable or a URL has for it."""
    return msgspec.convert(value, bool, strict=False)


def _between(minimum: float, maximum: float, parse: Callable[[Any], Any]) -> Callable[[object], Any]:
    def bounded(value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(value)
        number = parse(value)
        if not minimum <= number <= maximum or math.isinf(number):
            raise ValueError(value)
        return number

    return bounded


def _exact(amount: int, units: Mapping[str, int], smallest: str) -> str:
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if amount and amount % factor == 0:
            return json.dumps(f"{amount // factor}{unit}")
    return json.dumps(f"{amount}{smallest if amount else ''}")


def _written_duration(seconds: float) -> str:
    exact = Decimal(repr(seconds))
    milliseconds = exact * 1000
    return _exact(int(milliseconds), _DURATIONS, "ms") if milliseconds % 1 == 0 else f'"{exact:f}s"'


def size(minimum: int, maximum: float = math.inf) -> Kind:
    """Sizes in bytes, from a minimum to a maximum."""
    most = "" if math.isinf(maximum) else f", at most {json.loads(_exact(int(maximum), _SIZES, 'B'))}"
    allowed = f"a size such as 1024, 64MB or 1GiB, at least {minimum}{most}"
    return Kind(allowed, _between(minimum, maximum, parse_size), lambda size: _exact(size, _SIZES, "B"))


def duration(minimum: float) -> Kind:
    """Durations in seconds, from a minimum on."""
    allowed = "a duration such as 500ms, 30s, 5m, 1h or 7d" + (f", at least {minimum:g} s" if minimum else "")
    return Kind(allowed, _between(minimum, math.inf, parse_duration), _written_duration)


def unless_none(kind: Kind) -> Kind:
    def parse(value: object) -> Any:
        none = not isinstance(value, bool) and value in (-1, "-1")
        return -1.0 if none else kind.parse(value)

    return Kind(f"{kind.allowed}, or -1 for none", parse, lambda value: "-1" if value == -1 else kind.write(value))


TEXT = Kind("a text", text_of)
SWITCH = Kind("true or false", checked_flag)

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
CountOrNone = Annotated[int, msgspec.Meta(ge=-1)]  # -1: no limit
Factor = Annotated[float, msgspec.Meta(ge=1)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Bytes = Annotated[int, size(0)]
SomeBytes = Annotated[int, size(1)]
Seconds = Annotated[float, duration(0)]
SomeSeconds = Annotated[float, duration(0.001)]
SomeSecondsOrNone = Annotated[float, unless_none(duration(0.001))]
SecondsOrNone = Annotated[float, unless_none(duration(0))]  # -1: none
