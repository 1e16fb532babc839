"""What a broker's URL, a destination's name and a call may set, as ActiveMQ writes it.

- ``tcp://`` and ``ssl://`` URLs have the options of one transport, also written ``wireFormat.NAME``.
- ``failover:`` URLs have several brokers; ``BrokerAddresses`` says in which order they are tried.
- ``jms.NAME`` are the options of a connection: prefetch, redelivery by default and by destination.
- ``?consumer.NAME=value`` in a destination's name are those of a consumer.
"""

import difflib
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from quire import logs
from quire.client.arguments import refused
from quire.client.destinations import ClientDestination, client_destination
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument
from quire.options import Count, CountOrNone, Fraction, kind_of, made, option, options_of

T = TypeVar("T")


def read_options(kind: type[T], options: Mapping[str, str], prefix: str = "", ignored: Collection[str] = ()) -> T:
    """Make an object of options, of which a nested one has dotted names.

    Args:
        kind: what describes them; what is not given has its default.
        options: the values by name, without the prefix.
        prefix: what stood before each name, for the texts of errors.
        ignored: names that are accepted and mean nothing here.

    Raises:
        InvalidArgument: an option is unknown (``data`` has the ``nearest`` names), or its value is invalid.
    """
    known = {option.name: option for option in options_of(kind)}
    given: dict[str, Any] = {}
    for name, text in options.items():
        if name in known:
            try:
                given[known[name].attribute] = known[name].kind.parse(text)
            except ValueError as error:
                wrong = f"{prefix}{name}={text[:60]!r}: give {known[name].kind.allowed}"
                raise InvalidArgument(wrong, argument=prefix + name, value=text[:60]) from error
        elif name not in ignored:
            raise unknown_option(prefix + name, [prefix + other for other in (*known, *ignored)])
    return made(kind, given)


def unknown_option(name: str, known: Collection[str]) -> InvalidArgument:
    """The error for an option that is not there; its text has the nearest names."""
    nearest = difflib.get_close_matches(name, known, 3, 0.5)
    advice = f"the nearest are {', '.join(nearest)}" if nearest else f"there are {', '.join(sorted(known))}"
    return InvalidArgument(f"the option {name[:100]!r} is unknown: {advice}", argument=name[:100], nearest=nearest)


@dataclass(frozen=True, slots=True)
class WireFormatOptions:
    """What the client offers when the format of the connection is agreed."""

    version: int = option(12, "The highest version of OpenWire.")
    tight_encoding_enabled: bool = option(False, "Without effect: frames are in the loose encoding.")
    cache_enabled: bool = option(False, "Without effect: no objects are cached.")
    cache_size: int = option(1024, "Without effect: no objects are cached.")
    stack_trace_enabled: bool = option(False, "Exceptions come with the broker's stack.")
    tcp_no_delay_enabled: bool = option(True, "Send small frames at once.")
    size_prefix_disabled: bool = option(False, "Without effect: each frame begins with its length.")
    max_inactivity_duration: int = option(30_000, "After how many ms of silence a side is taken for dead; 0: never.")
    max_inactivity_duration_inital_delay: int = option(
        10_000, "When that is checked first, in ms (ActiveMQ spells it so)."
    )
    max_frame_size: int = option(100 * 1024 * 1024, "The largest frame, in bytes.")


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options of one transport."""

    connection_timeout: int = option(30_000, "How long connecting may take, in ms.")
    wire_format: WireFormatOptions = field(default_factory=WireFormatOptions)


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """How a connection is made again, with ActiveMQ's names and defaults; all times are in milliseconds."""

    initial_reconnect_delay: int = option(10, "Before the second attempt; the first is made at once.")
    max_reconnect_delay: int = option(30_000, "What the delay grows to.")
    use_exponential_back_off: bool = option(True, "Each delay is the one before times `reconnectDelayExponent`.")
    reconnect_delay_exponent: float = option(2.0, "The factor.")
    max_reconnect_attempts: int = option(
        -1, "After so many rounds over all brokers the connection fails; -1: never; 0: it is not made again."
    )
    startup_max_reconnect_attempts: int = option(
        -1, "The same for the first connection; -1: as `maxReconnectAttempts`."
    )
    timeout: int = option(-1, "After which time without a connection sends fail; -1: they wait.")
    randomize: bool = option(True, "The brokers are tried in random order.")
    backup: bool = option(False, "Keep sockets to other brokers open, so that connecting again takes no time.")
    backup_pool_size: int = option(1, "How many of them.")
    priority_backup: bool = option(False, "Go back to a preferred broker as soon as it answers again.")
    priority_uris: str = option(
        "", "The preferred brokers, joined by commas; by default the first one of the URL.", name="priorityURIs"
    )
    track_messages: bool = option(False, "Keep messages that were sent without an answer, and send them again.")
    max_cache_size: int = option(128 * 1024, "How many bytes of those are kept.")
    update_uris_supported: bool = option(
        True, "Take the brokers of the cluster that the broker names into the list.", name="updateURIsSupported"
    )
    rebalance_update_uris: bool = option(
        True, "Go to another broker when the broker says that the cluster is rebalanced.", name="rebalanceUpdateURIs",
    )  # fmt: skip
    reconnect_supported: bool = option(True, "Go to another broker when the broker sends the connection there.")
    warn_after_reconnect_attempts: int = option(
        10, "After so many rounds, and their multiples, the log has a warning; 0: never."
    )

    def delay_ms(self, rounds: int) -> float:
        """The delay after so many failed rounds, from 1, in milliseconds."""
        delay = float(self.initial_reconnect_delay)
        if self.use_exponential_back_off:
            # A larger exponent overflows, and the limit is reached long before.
            delay *= self.reconnect_delay_exponent ** min(rounds - 1, 100)
        return min(delay, self.max_reconnect_delay)

    def limit(self, first: bool) -> int:
        """After how many rounds the connection fails; -1: never."""
        if first and self.startup_max_reconnect_attempts != -1:
            return self.startup_max_reconnect_attempts
        return self.max_reconnect_attempts


MAX_PREFETCH = 32767
"""The largest prefetch, as in ActiveMQ."""


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """The prefetch of each kind of consumer; 0 means that ``receive`` asks the broker for each message."""

    queue_prefetch: int = option(-1, "Of a consumer of a queue.")
    queue_browser_prefetch: int = option(-1, "Of a browser.")
    topic_prefetch: int = option(-1, "Of a consumer of a topic.")
    durable_topic_prefetch: int = option(-1, "Of a durable subscription.")
    optimize_durable_topic_prefetch: int = option(-1, "Of a durable subscription while `optimizeAcknowledge` is on.")
    all: int = option(-1, "If not negative, the prefetch of every kind, except where one is given beside it.")

    def prefetch(
        self, topic: bool = False, browser: bool = False, durable: bool = False, optimized: bool = False
    ) -> int:
        """The prefetch of a consumer of a kind; never above 32767.

        Args:
            topic: the destination is a topic.
            browser: it is a browser.
            durable: it is a durable subscription.
            optimized: acknowledgements are optimized.
        """
        if browser:
            return self._of(self.queue_browser_prefetch, 500)
        if not topic:
            return self._of(self.queue_prefetch, 1000)
        if durable and optimized:
            return self._of(self.optimize_durable_topic_prefetch, 1000)
        return self._of(self.durable_topic_prefetch, 100) if durable else self._of(self.topic_prefetch, MAX_PREFETCH)

    def _of(self, own: int, default: int) -> int:
        return checked_prefetch(own if own >= 0 else self.all if self.all >= 0 else default)


def checked_prefetch(prefetch: int) -> int:
    """A prefetch that a consumer gave, cut to the largest one.

    Raises:
        InvalidArgument: it is negative.
    """
    if prefetch < 0:
        raise InvalidArgument(f"the prefetch is {prefetch}: give 0 or more", argument="prefetch")
    return min(prefetch, MAX_PREFETCH)


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """The redelivery policy of a consumer, with the parameters of ActiveMQ's ``RedeliveryPolicy``; delays are in ms.

    Args:
        maximum_redeliveries: after so many redeliveries the message is poison, and a dead letter; -1: no maximum.
        initial_redelivery_delay: before the first redelivery.
        redelivery_delay: before each later one.
        maximum_redelivery_delay: what an exponential delay grows to at most; -1: without a limit.
        use_exponential_back_off: multiply each delay by ``back_off_multiplier``.
        back_off_multiplier: the factor.
        use_collision_avoidance: vary each delay at random.
        collision_avoidance_factor: by which share of it at most, up or down.
        pre_dispatch_check: a transacted consumer gives a message that comes with too many redeliveries back at once.
    """

    maximum_redeliveries: CountOrNone = option(6, "After so many redeliveries a message becomes a dead letter.")
    initial_redelivery_delay: Count = option(1000, "The delay before the first redelivery.")
    redelivery_delay: Count = option(1000, "The delay before each later one.")
    maximum_redelivery_delay: CountOrNone = option(-1, "What an exponential delay grows to; -1: no limit.")
    use_exponential_back_off: bool = option(False, "Whether each delay is multiplied by `backOffMultiplier`.")
    back_off_multiplier: Annotated[float, msgspec.Meta(ge=0)] = option(5.0, "The factor.")
    use_collision_avoidance: bool = option(False, "Whether delays vary at random.")
    collision_avoidance_factor: Fraction = option(0.15, "By which share of a delay at most, up or down.")
    pre_dispatch_check: bool = option(True, "Whether a transacted consumer gives back what came back too often.")

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            try:
                msgspec.convert(value, part.type)
            except msgspec.ValidationError as error:
                raise refused(part.name, value, kind_of(part.type).allowed) from error

    def is_exceeded(self, redeliveries: int) -> bool:
        """Whether a message that was delivered again so often is poison."""
        return self.maximum_redeliveries != -1 and redeliveries > self.maximum_redeliveries

    def next_delay(self, previous: int, random: Random) -> int:
        """The delay that follows on another one.

        Args:
            previous: the delay before, in ms.
            random: for the avoidance of collisions.

        Returns:
            Milliseconds.
        """
        delay = float(self.redelivery_delay)
        if previous > 0 and self.use_exponential_back_off and self.back_off_multiplier > 1:
            delay = previous * self.back_off_multiplier
            if self.maximum_redelivery_delay != -1 and delay > self.maximum_redelivery_delay:
                delay = max(self.maximum_redelivery_delay, self.redelivery_delay)
        if self.use_collision_avoidance:
            share = self.collision_avoidance_factor * random.random()
            delay += delay * (share if random.random() < 0.5 else -share)
        return int(min(delay, 2**53))

    def delay(self, redeliveries: int, random: Random) -> int:
        """The delay before a redelivery.

        Args:
            redeliveries: which one, from 1.
            random: for the avoidance of collisions.

        Returns:
            Milliseconds.
        """
        delay = self.initial_redelivery_delay
        # Every delay after the first few is the same, or has reached what can be waited for.
        for _ in range(min(redeliveries - 1, 1000)):
            delay = self.next_delay(delay, random)
        return delay


PoliciesByDestination: TypeAlias = Mapping[ClientDestination | str, RedeliveryPolicy]
"""Policies by destination; a text is the name of a queue, or begins with ``topic://`` or ``stream://``."""


class RedeliveryPolicies:
    """Finds the policy of a destination; of several patterns that match, the most specific one counts.

    Args:
        default: for destinations that no pattern matches.
        by_destination: policies by destination; the names may have wildcards.
    """

    def __init__(self, default: RedeliveryPolicy, by_destination: PoliciesByDestination | None = None) -> None:
        self._default = default
        if not isinstance(by_destination, Mapping | None):
            raise refused("policies", by_destination, "a mapping from destinations to policies")
        entries = []
        for given, policy in (by_destination or {}).items():
            if not isinstance(policy, RedeliveryPolicy):
                raise refused("policies", policy, "a RedeliveryPolicy for each destination")
            where = client_destination(given, "policies")
            entries.append((Pattern(where.name), where, policy))
        self._entries = sorted(entries, key=lambda entry: entry[0].specificity)

    def policy(self, destination: ClientDestination) -> RedeliveryPolicy:
        """The policy of a destination."""
        for pattern, where, policy in self._entries:
            if where.is_topic == destination.is_topic and pattern.matches(destination.name):
                return policy
        return self._default


WITHOUT_MEANING = (
    "alwaysSessionAsync", "consumerFailoverRedeliveryWaitPeriod", "copyMessageOnSend", "maxInflatedDataSizeRatio",
    "maxThreadPoolSize", "messagePrioritySupported", "nestedMapAndListEnabled", "objectMessageSerializationDefered",
    "optimizedMessageDispatch", "rmIdFromConnectionId", "statsEnabled", "strictCompliance", "trustAllPackages",
    "useDedicatedTaskRunner", "useVirtualThreadTaskRunner", "warnAboutUnstartedConnectionTimeout",
    "watchTopicAdvisories",
)  # fmt: skip
"""Options of ActiveMQ's Java client that are accepted and have nothing to decide in this one."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of a connection, with ActiveMQ's names and defaults; all times are in milliseconds."""

    client_id: str = option(
        "", "Whose durable subscriptions the connection may use; by default an id that is unique.", name="clientID"
    )
    client_id_prefix: str = option("", "What that id begins with.", name="clientIDPrefix")
    connection_id_prefix: str = option(
        "", "What the id of the connection begins with, and so those of its messages.", name="connectionIDPrefix"
    )
    user_name: str = option("", "The user.")
    password: str = option("", "The user's password.", is_secret=True)
    prefetch_policy: PrefetchPolicy = field(default_factory=PrefetchPolicy)
    redelivery_policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    optimize_acknowledge: bool = option(
        False, "`AUTO` sessions acknowledge in batches: at 65 % of the prefetch, or after the time-out."
    )
    optimize_acknowledge_time_out: int = option(300, "After which time the next message sends the batch; 0: never.")
    optimized_ack_scheduled_ack_interval: int = option(0, "How often a timer sends the batch; 0: never.")
    send_acks_async: bool = option(True, "Acknowledgements are not answered by the broker.")
    use_async_send: bool = option(False, "Sends are not answered by the broker, not even of persistent messages.")
    always_sync_send: bool = option(
        False, "Every send is answered, also of non-persistent messages and inside transactions."
    )
    send_timeout: int = option(0, "How long the answer to a send may take; 0: the `requestTimeout`.")
    request_timeout: int = option(60_000, "How long any other answer may take; 0: without a limit.")
    connect_response_timeout: int = option(
        0, "How long the broker may take to accept the connection; 0: the `requestTimeout`."
    )
    close_timeout: int = option(15_000, "How long the broker may take to answer a close.")
    producer_window_size: int = option(
        0, "How many bytes a producer may have sent that the broker has not taken; 0: no limit."
    )
    exclusive_consumer: bool = option(False, "Consumers are exclusive.")
    use_retroactive_consumer: bool = option(False, "Consumers are retroactive.")
    dispatch_async: bool = option(True, "The broker dispatches to consumers from another thread.")
    use_compression: bool = option(False, "Bodies are compressed.")
    disable_time_stamps_by_default: bool = option(False, "Messages have no timestamp.")
    non_blocking_redelivery: bool = option(False, "Messages behind a rolled back one do not wait for it.")
    transacted_individual_ack: bool = option(False, "Transacted sessions acknowledge each message by itself.")
    check_for_duplicates: bool = option(
        True, "Messages that were finished and come again are acknowledged again, and not delivered."
    )
    audit_depth: int = option(2048, "Of how many messages of a producer the check knows.")
    audit_maximum_producer_number: int = option(64, "Of how many producers of a destination.")
    consumer_expiry_check_enabled: bool = option(True, "Expired messages are not delivered.")
    tracing: bool = option(
        False, "Sends continue the trace of their code, and listeners that of their message (`quire.client.tracing`)."
    )
    warn_about_blocked_sends: int = option(
        5_000, "After which time an unanswered send is reported in the log; 0: never."
    )

    @property
    def acks_individually_in_transactions(self) -> bool:
        """Whether transacted consumers acknowledge each message by itself: later ones may overtake it then."""
        return self.transacted_individual_ack or self.non_blocking_redelivery


PREFIX = "consumer."


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options that a destination's name may have; -1 and None: not given there."""

    prefetch_size: int = option(-1, "How many messages the broker may give ahead.")
    maximum_pending_message_limit: int = option(
        0, "How many messages a slow consumer of a topic may have waiting at the broker."
    )
    no_local: bool = option(False, "Without messages of the same connection.")
    dispatch_async: bool = option(True, "The broker dispatches from another thread.")
    retroactive: bool = option(False, "Also messages from before the subscription, if the broker keeps some.")
    selector: str = option("", "A selector.")
    exclusive: bool = option(False, "The only one that gets messages while it is there.")
    priority: int = option(0, "Consumers with a higher one get messages first.")


def consumer_options(destination: ClientDestination) -> ConsumerOptions:
    """The options in a destination's name.

    Raises:
        InvalidArgument: one is unknown, or its value is invalid.
    """
    own = {}
    for name, value in destination.options.items():
        if not name.startswith(PREFIX):
            raise unknown_option(name, [PREFIX + "prefetchSize", PREFIX + "selector", PREFIX + "exclusive"])
        own[name.removeprefix(PREFIX)] = value
    return read_options(ConsumerOptions, own, PREFIX)


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


MOST = 100
"""How many brokers a broker may name."""


class BrokerAddresses:
    """The brokers of a connection: those of its URL, and those that its broker names.

    Args:
        url: the connection's.
        options: the order, and which brokers are preferred.
        random: for a random order.

    Attributes:
        current: the broker that the connection has at present.
    """

    def __init__(self, url: BrokerUrl, options: FailoverOptions, random: Random) -> None:
        self._own = list(url.addresses)
        self._nested = url.nested
        self._options = options
        self._random = random
        self._named: list[BrokerAddress] = []
        self._next: BrokerAddress | None = None
        preferred = [uri.strip() for uri in options.priority_uris.split(",") if uri.strip()]
        self._preferred = [read_address(uri, self._nested) for uri in preferred] or self._own[:1]
        self.current: BrokerAddress | None = None

    def next_round(self) -> list[BrokerAddress]:
        """Each broker once, in the order to try them: where the connection was sent to, then the preferred ones."""
        known = {str(address): address for address in [*self._named, *self._own]}
        found = list(known.values())
        if self._options.randomize:
            self._random.shuffle(found)
        if self._options.priority_backup:
            preferred = {str(address) for address in self._preferred}
            found.sort(key=lambda address: str(address) not in preferred)
        if self._next is not None:
            found = [self._next, *(address for address in found if str(address) != str(self._next))]
            self._next = None
        return found

    def others(self) -> list[BrokerAddress]:
        """Every broker but the present one."""
        known = {str(address): address for address in [*self._own, *self._named]}
        return [address for key, address in known.items() if key != str(self.current)]

    def update(self, uris: str) -> None:
        """The broker named the brokers of its cluster, joined by commas."""
        self._named = [address for uri in uris.split(",")[:MOST] if (address := self._read(uri)) is not None]

    def go_to(self, uri: str) -> None:
        """Try this broker first in the next round."""
        self._next = self._read(uri) or self._next

    def preferred(self) -> list[BrokerAddress]:
        """The preferred brokers."""
        return self._preferred

    def is_preferred(self) -> bool:
        """Whether the present broker is a preferred one."""
        return str(self.current) in {str(address) for address in self._preferred}

    def _read(self, uri: str) -> BrokerAddress | None:
        if not uri.strip():
            return None
        try:
            # The options of an address that a broker names are those of its listener.
            return read_address(uri.strip().partition("?")[0], self._nested)
        except InvalidArgument as error:
            logs.event("client.bad-address", f"the broker named an address that is none: {error}", logging.WARNING)
            return None
