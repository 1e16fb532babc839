"""What a SUBSCRIBE frame asks for."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address, read_destination
from quire.broker.routing.route import whole_number
from quire.destination import DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidHeader
from quire.logs import event
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.versions import Version
from quire.selectors import Selector, selector
from quire.server.stomp.stomp_membership import MembershipRequest, read_membership

MAX_PREFETCH = 1_000_000
"""The most messages a consumer may ask to have in flight."""

_ANY_PREFETCH = (1 << 31) - 1
_NAMES = ("activemq.subscriptionName", "durable-subscription-name")
_DURABLE = ("durable", "persistent")


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A SUBSCRIBE frame, understood.

    Attributes:
        id: the subscription's name.
        named: whether the client gave it; in 1.0 it need not.
        addresses: what is subscribed to.
        ack: how messages are acknowledged.
        prefetch: how many may be in flight; None for what the policy says, 0 for what is pulled.
        selector: which messages are wanted; None for all.
        priority: consumers with a higher one are served first.
        exclusive: whether it wants all messages of its queue.
        no_local: whether what its own connection sends to the topic is left out.
        retroactive: whether it wants the messages that the topic keeps.
        maximum_pending: how many messages may wait for it beyond its prefetch; None for what the policy says.
        browser: whether messages are only to be shown.
        durable: the name of the durable subscription; None if it is none.
        membership: what is asked for of a stream; None of queues and topics.
    """

    id: str
    named: bool
    addresses: list[Address]
    ack: AckMode
    prefetch: int | None
    selector: Selector | None
    priority: int
    exclusive: bool
    no_local: bool
    retroactive: bool
    maximum_pending: int | None
    browser: bool
    durable: str | None
    membership: MembershipRequest | None

    @property
    def is_single(self) -> bool:
        """Whether it is about one destination, known by its name."""
        return len(self.addresses) == 1 and not Pattern(self.addresses[0].name).is_wildcard


def read_subscribe(head: Head, version: Version) -> SubscribeRequest:
    """Understand a SUBSCRIBE frame. A header stands over the destination's option that means the same.

    Raises:
        InvalidDestination: the destination is none.
        InvalidHeader: a header's value cannot be read, or makes no sense with the destination.
        InvalidSelector: the selector cannot be read.
    """
    addresses, options = read_destination(head.headers["destination"])
    headers = {**options, **head.headers}
    text = headers.get("selector", "")
    request = SubscribeRequest(
        id=headers.get("id", headers["destination"]),
        named="id" in headers,
        addresses=addresses,
        ack=_ack_mode(headers),
        prefetch=read_prefetch(headers),
        selector=selector(text) if text.strip() else None,
        priority=_number(headers, "activemq.priority", -128, 127) or 0,
        exclusive=is_true(headers, "activemq.exclusive"),
        no_local=is_true(headers, "activemq.noLocal") or is_true(headers, "no-local"),
        retroactive=is_true(headers, "activemq.retroactive"),
        maximum_pending=_number(headers, "activemq.maximumPendingMessageLimit", -1, 1 << 31),
        browser=is_true(headers, "browser"),
        durable=durable_name(headers, of_queue=addresses[0].kind is not DestinationKind.TOPIC),
        membership=read_membership(headers) if addresses[0].kind is DestinationKind.STREAM else None,
    )
    _check(request, version)
    return request


def durable_name(headers: Mapping[str, str], *, of_queue: bool) -> str | None:
    """The name of the durable subscription that SUBSCRIBE or UNSUBSCRIBE is about; None if it is about none.

    It stands in a header of ActiveMQ's or Artemis'. With one of RabbitMQ's, which only says that there is one, it is
    the id; of a queue those headers say nothing that matters here.

    Args:
        of_queue: whether the frame is about a queue.

    Raises:
        InvalidHeader: the name is empty.
    """
    header = next((header for header in _NAMES if header in headers), "")
    if not header:
        if of_queue or not any([is_true(headers, durable) for durable in _DURABLE]):
            return None
        header = "id"
    name = headers.get(header, "")
    if not name:
        raise InvalidHeader(f"a durable subscription needs a name: {header}", header=header)
    return name


def is_true(headers: Mapping[str, str], name: str) -> bool:
    """Whether a header that is ``true`` or ``false`` is true; without it, it is not."""
    text = headers.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidHeader(f"{name} is {text[:60]!r}: write true or false", header=name)
    return text == "true"


def _number(headers: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A header that is a number; None if it is none or out of its range: it is as if it were not there (ActiveMQ)."""
    try:
        return whole_number(headers, name, 0, least, most) if name in headers else None
    except InvalidHeader as error:
        text = f"a consumer of {headers['destination'][:100]!r} asked for what is not possible: {error}"
        event("consumer.unknown-number", text, logging.WARNING)
        return None


def read_prefetch(headers: Mapping[str, str]) -> int | None:
    """What ActiveMQ's header says, or RabbitMQ's, whose 0 is no limit; None if neither says anything."""
    prefetch = _number(headers, "activemq.prefetchSize", 0, _ANY_PREFETCH)
    if prefetch is None:
        prefetch = _number(headers, "prefetch-count", 0, _ANY_PREFETCH)
        prefetch = MAX_PREFETCH if prefetch == 0 else prefetch
    return None if prefetch is None else min(prefetch, MAX_PREFETCH)


def _ack_mode(headers: Mapping[str, str]) -> AckMode:
    """What the header says; ``auto`` if it says anything else, as in ActiveMQ."""
    try:
        return AckMode(headers.get("ack", "auto").strip().lower())
    except ValueError:
        text = f"a consumer of {headers['destination'][:100]!r} asked for the unknown ack mode {headers['ack'][:60]!r}"
        event("consumer.unknown-ack", f"{text}: its messages are done when they are sent", logging.WARNING)
        return AckMode.AUTO


def _check(request: SubscribeRequest, version: Version) -> None:
    kinds = {address.kind for address in request.addresses}
    wrong = ""
    if DestinationKind.STREAM in kinds and (request.browser or request.prefetch == 0 or not request.is_single):
        wrong = "a stream is subscribed to alone, by its name; it is not browsed, and there is no prefetch of 0"
    elif request.browser:
        if version is Version.V1_0:
            wrong = "browser needs STOMP 1.1 or later: what is shown is told apart by the header subscription"
        elif kinds != {DestinationKind.QUEUE} or not request.is_single:
            wrong = "browser shows one queue; topics and wildcards cannot be browsed"
    elif request.durable is not None and (kinds != {DestinationKind.TOPIC} or not request.is_single):
        wrong = "a durable subscription is to one topic; queues keep their messages anyway"
    elif request.no_local and DestinationKind.QUEUE in kinds:
        wrong = "noLocal is for topics: a queue gives each message to one consumer, which may be the one that sent it"
    elif request.prefetch == 0 and not request.is_single:
        wrong = "activemq.prefetchSize:0 needs one destination: a pull from several is not possible"
    if wrong:
        raise InvalidHeader(wrong, header="destination")
