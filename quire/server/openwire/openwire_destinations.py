"""Destinations and errors as OpenWire names them; a stream is a topic named ``stream://NAME``."""

from functools import lru_cache

from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.destination import Destination, DestinationKind, split_options
from quire.errors import ERRORS, InvalidDestination, QuireError
from quire.protocols.openwire.commands import (
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTopic,
    Throwable,
)

_KINDS: dict[type[ActiveMQDestination], tuple[DestinationKind, Scope]] = {
    ActiveMQQueue: (DestinationKind.QUEUE, Scope.COMMON),
    ActiveMQTopic: (DestinationKind.TOPIC, Scope.COMMON),
    ActiveMQTempQueue: (DestinationKind.QUEUE, Scope.REMOTE),
    ActiveMQTempTopic: (DestinationKind.TOPIC, Scope.REMOTE),
}
_CLASSES = {meaning: kind for kind, meaning in _KINDS.items()}
STREAM = "stream://"
"""What the name of a stream begins with."""

_SCHEMES = {
    **{f"{kind.SCHEME}://": meaning for kind, meaning in _KINDS.items()},
    STREAM: (DestinationKind.STREAM, Scope.COMMON),
}

LONGEST_NAME = 20_000
"""A list of destinations may have so many characters: a string of OpenWire has up to 65535 octets."""

REMEMBERED = 10_000
"""How many destinations are remembered with their addresses."""


@lru_cache(REMEMBERED)
def addresses_of(destination: ActiveMQDestination) -> tuple[Address, ...]:
    """The parts of a destination: more than one of a composite (``A,B`` or ``A,topic://B``)."""
    names, _, _ = destination.physical_name.partition("?")  # options are the client's
    own = _KINDS.get(type(destination))
    parts = [part.strip() for part in names.split(",")]
    if own is None or not all(parts):
        raise InvalidDestination(f"{str(destination)[:100]!r} has no name", destination=str(destination)[:100])
    return tuple(dict.fromkeys([_address(part, *own) for part in parts]))


def _address(part: str, kind: DestinationKind, scope: Scope) -> Address:
    for scheme, meaning in _SCHEMES.items():
        if part.startswith(scheme):
            return Address(meaning[0], part.removeprefix(scheme), meaning[1])
    return Address(kind, part, scope)


def stream_option(written: str, option: str) -> str | None:
    """The one option that may stand behind the name of a stream (``stream://orders?start=earliest``), or None."""
    _, options = split_options(written)
    if others := options.keys() - {option}:
        text = f"{written[:100]!r} has the option {min(others)[:60]!r}: here a stream may have {option} alone"
        raise InvalidDestination(text, destination=written[:100])
    return options.get(option)


@lru_cache(REMEMBERED)
def text_of(destination: ActiveMQDestination) -> str:
    """A destination as the core's headers have it: ``/queue/A,/topic/B``. Raises what ``addresses_of`` does."""
    return ",".join([str(address) for address in addresses_of(destination)])


def openwire_destination(kind: DestinationKind, name: str, scope: Scope = Scope.COMMON) -> ActiveMQDestination:
    if kind is DestinationKind.STREAM:
        return ActiveMQTopic(f"{STREAM}{name}")
    return _CLASSES.get((kind, scope), ActiveMQTopic)(name)


@lru_cache(REMEMBERED)
def destination_in(text: str) -> ActiveMQDestination | None:
    """The destination that a header such as ``reply-to`` names; None if it names none, or too many."""
    try:
        addresses, _ = read_destination(text)
    except InvalidDestination:
        return None
    first = addresses[0]
    if len(addresses) == 1:
        return openwire_destination(first.kind, first.name, first.scope)
    parts = [openwire_destination(address.kind, address.name, address.scope) for address in addresses]
    own = type(parts[0])
    name = ",".join([part.physical_name if type(part) is own else str(part) for part in parts])
    return own(name) if len(name) <= LONGEST_NAME else None


def written_destination(text: str) -> ActiveMQDestination:
    """The destination that an advisory names: ``queue://orders``."""
    kind, _, name = text.partition("://")
    return openwire_destination(DestinationKind(kind), name)


def plain(destination: ActiveMQDestination) -> Destination:
    addresses = addresses_of(destination)
    if len(addresses) != 1:
        text = f"{str(destination)[:100]!r} names several destinations: name one"
        raise InvalidDestination(text, destination=str(destination)[:100])
    return Destination(addresses[0].kind, addresses[0].name)


JAVAX, JAKARTA = "javax.jms", "jakarta.jms"
"""The packages of JMS: clients of ActiveMQ 6 know the second one alone."""


def package_for(provider_version: str) -> str:
    """The package of JMS that a client knows, by the version that it says it is of."""
    major = provider_version.partition(".")[0]
    return JAKARTA if major.isdigit() and int(major) >= 6 else JAVAX


def throwable(error: QuireError, package: str, *, xa: bool = False) -> Throwable:
    """An error as a client is told it, its code first; of an XA transaction its number stands at the end."""
    entry = ERRORS[error.code]
    if xa:
        text = f"{error.code}: {error} xaErrorCode:{entry.xa}"
        return Throwable("javax.transaction.xa.XAException", text)
    name = entry.openwire
    return Throwable(name if "." in name else f"{package}.{name}", f"{error.code}: {error}")
