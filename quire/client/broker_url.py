"""The URLs of brokers, as ActiveMQ writes them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from quire.client.arguments import refused
from quire.client.connection_options import WITHOUT_MEANING, ConnectionOptions
from quire.client.failover_options import FailoverOptions
from quire.client.options import read_options
from quire.client.transport_options import TransportOptions
from quire.errors import InvalidArgument

DEFAULT_PORT = 61616

_FAILOVER_WITHOUT_MEANING = ("trackTransactionProducers",)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker listens, and the options of the transport to it."""

    host: str
    port: int
    tls: bool = False
    options: TransportOptions = field(default_factory=TransportOptions)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ssl' if self.tls else 'tcp'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """A URL that was read.

    Attributes:
        addresses: the brokers, at least one.
        options: the ``jms.*`` options.
        failover: the options of failover; None for a URL without it.
        nested: the options that ``nested.*`` gives to the transport of every broker.
    """

    addresses: tuple[BrokerAddress, ...]
    options: ConnectionOptions
    failover: FailoverOptions | None = None
    nested: Mapping[str, str] = field(default_factory=dict)


def read_url(text: str) -> BrokerUrl:
    """Read a URL: ``tcp://host:port?options``, ``ssl://...`` or ``failover:(tcp://a:1,tcp://b:2)?options``.

    Args:
        text: the URL. ``jms.NAME`` are options of the connection, ``wireFormat.NAME`` of the protocol; the options of
            failover have no prefix, and ``nested.NAME`` gives an option to each of its transports.

    Raises:
        InvalidArgument: it cannot be read, or an option is unknown; the text names the nearest ones.
    """
    if not isinstance(text, str):
        raise refused("url", text, "a text: tcp://HOST:PORT, ssl://HOST:PORT or failover:(tcp://HOST:PORT,...)")
    if not text.startswith("failover:"):
        address, options = _split(text)
        jms = {name: value for name, value in options.items() if name.startswith("jms.")}
        own = {name: value for name, value in options.items() if name not in jms}
        return BrokerUrl((_address(address, own),), _connection_options(jms))
    inner, options = _failover_parts(text.removeprefix("failover:"))
    groups: dict[str, dict[str, str]] = {"jms.": {}, "nested.": {}, "": {}}
    for name, value in options.items():
        prefix = next(prefix for prefix in groups if name.startswith(prefix))
        groups[prefix][name.removeprefix(prefix) if prefix == "nested." else name] = value
    addresses = tuple(read_address(part, groups["nested."]) for part in inner)
    failover = read_options(FailoverOptions, groups[""], ignored=_FAILOVER_WITHOUT_MEANING)
    return BrokerUrl(addresses, _connection_options(groups["jms."]), failover, groups["nested."])


def read_address(text: str, more: Mapping[str, str]) -> BrokerAddress:
    """Read the URL of one broker; ``more`` are options that it has beside its own."""
    address, options = _split(text)
    return _address(address, {**more, **options})


def _address(text: str, options: Mapping[str, str]) -> BrokerAddress:
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidArgument(f"the port of {text[:100]!r} is not a number up to 65535", argument="url") from error
    if parts.scheme not in ("tcp", "nio", "ssl", "nio+ssl") or not parts.hostname or parts.path not in ("", "/"):
        raise InvalidArgument(
            f"{text[:100]!r} is not the URL of a broker: write tcp://HOST:PORT, ssl://HOST:PORT or "
            "failover:(tcp://HOST:PORT,tcp://HOST:PORT)",
            argument="url",
        )
    made = read_options(TransportOptions, options)
    return BrokerAddress(parts.hostname, DEFAULT_PORT if port is None else port, parts.scheme.endswith("ssl"), made)


def _connection_options(options: Mapping[str, str]) -> ConnectionOptions:
    own = {name.removeprefix("jms."): value for name, value in options.items()}
    return read_options(ConnectionOptions, own, "jms.", WITHOUT_MEANING)


def _failover_parts(text: str) -> tuple[list[str], dict[str, str]]:
    text = text.removeprefix("//")
    if text.startswith("("):
        inner, closed, rest = text[1:].rpartition(")")
        if not closed or (rest and not rest.startswith("?")):
            raise InvalidArgument("write failover:(tcp://HOST:PORT,tcp://HOST:PORT)?option=value", argument="url")
    else:
        inner, _, query = text.partition("?")
        rest = f"?{query}"
    return [part.strip() for part in re.split(r",(?=\s*[a-z+]+://)", inner)], _split(rest)[1]


def _split(text: str) -> tuple[str, dict[str, str]]:
    address, _, query = text.partition("?")
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        if not equals or name in options:
            raise InvalidArgument(
                f"the option {pair[:60]!r} of the URL: write NAME=VALUE, each one once", argument="url"
            )
        options[unquote(name)] = unquote(value)
    return address, options
