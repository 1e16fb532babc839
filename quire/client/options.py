"""What a broker's URL, a destination's name and a call may set, as ActiveMQ writes it.

- ``tcp://`` and ``ssl://`` URLs have the options of one transport, also written ``wireFormat.NAME``.
- ``failover:`` URLs have several brokers; ``BrokerAddresses`` says in which order they are tried.
- ``jms.NAME`` are the options of a connection: prefetch, redelivery by default and by destination.
- ``?consumer.NAME=value`` in a destination's name are those of a consumer.
"""

import difflib
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from random import Random
from typing import Any, TypeAlias, TypeVar, get_type_hints
from urllib.parse import unquote, urlsplit

from quire import logs
from quire.client.arguments import check_flag, check_number, check_whole, refused
from quire.client.destinations import ClientDestination, client_destination
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument

T = TypeVar("T")


def read_options(kind: type[T], options: Mapping[str, str], prefix: str = "", ignored: Collection[str] = ()) -> T:
    """Make a dataclass from options; a field ``a_b`` is the option ``aB``, and a nested dataclass has dotted names.

    Args:
        kind: the dataclass; what is not given has its default.
        options: the values by name, without the prefix.
        prefix: what stood before each name, for the texts of errors.
        ignored: names that are accepted and mean nothing here.

    Raises:
        InvalidArgument: an option is unknown (``data`` has the ``nearest`` names), or its value is invalid.
    """
    known = dict(_known(kind))
    given: dict[str, Any] = {}
    for name, text in options.items():
        if name in known:
            _put(given, known[name][0], _value(known[name][1], text, prefix + name))
        elif name not in ignored:
            raise unknown_option(prefix + name, [prefix + other for other in (*known, *ignored)])
    return _made(kind, given)


def unknown_option(name: str, known: Collection[str]) -> InvalidArgument:
    """The error for an option that is not there; its text has the nearest names."""
    nearest = difflib.get_close_matches(name, known, 3, 0.5)
    advice = f"the nearest are {', '.join(nearest)}" if nearest else f"there are {', '.join(sorted(known))}"
    return InvalidArgument(f"the option {name[:100]!r} is unknown: {advice}", argument=name[:100], nearest=nearest)


def _known(kind: type[Any], path: tuple[str, ...] = (), prefix: str = "") -> Iterator[tuple[str, tuple[Any, type]]]:
    hints = get_type_hints(kind)
    for item in fields(kind):
        name, hint = prefix + _option_name(item), hints[item.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _known(hint, (*path, item.name), name + ".")
        elif hint in (bool, int, float, str):
            yield name, ((*path, item.name), hint)


def _option_name(item: Field[Any]) -> str:
    first, *rest = item.name.split("_")
    return str(item.metadata.get("option", first + "".join(word.capitalize() for word in rest)))


def _value(hint: type, text: str, name: str) -> bool | int | float | str:
    try:
        if hint is bool:
            return {"true": True, "false": False}[text.lower()]
        return int(text) if hint is int else float(text) if hint is float else text
    except (KeyError, ValueError) as error:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[hint]
        raise InvalidArgument(f"{name}={text[:60]!r}: give {wanted}", argument=name, value=text[:60]) from error


def _put(given: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for part in path[:-1]:
        given = given.setdefault(part, {})
    given[path[-1]] = value


def _made(kind: type[T], given: dict[str, Any]) -> T:
    hints = get_type_hints(kind)
    return kind(**{name: _made(hints[name], value) if is_dataclass(hints[name]) else value
                   for name, value in given.items()})  # fmt: skip


@dataclass(frozen=True, slots=True)
class WireFormatOptions:
    """What the client offers when the format of the connection is agreed.

    Attributes:
        version: the highest version of OpenWire.
        tight_encoding_enabled: the shorter encoding, which takes more time.
        cache_enabled: send objects that repeat by a number.
        cache_size: how many of them.
        stack_trace_enabled: exceptions come with the broker's stack.
        tcp_no_delay_enabled: send small frames at once.
        size_prefix_disabled: frames have no length before them.
        max_inactivity_duration: after how many ms of silence a side is taken for dead; 0: never.
        max_inactivity_duration_inital_delay: when that is checked first, in ms (ActiveMQ spells it so).
        max_frame_size: the largest frame, in bytes.
    """

    version: int = 12
    tight_encoding_enabled: bool = False
    cache_enabled: bool = False
    cache_size: int = 1024
    stack_trace_enabled: bool = False
    tcp_no_delay_enabled: bool = True
    size_prefix_disabled: bool = False
    max_inactivity_duration: int = 30_000
    max_inactivity_duration_inital_delay: int = 10_000
    max_frame_size: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options of one transport.

    Attributes:
        connection_timeout: how long connecting may take, in ms.
        wire_format: what is offered for the format.
    """

    connection_timeout: int = 30_000
    wire_format: WireFormatOptions = field(default_factory=WireFormatOptions)


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """How a connection is made again, with ActiveMQ's names and defaults; all times are in milliseconds.

    Attributes:
        initial_reconnect_delay: before the second attempt; the first is made at once.
        max_reconnect_delay: what the delay grows to.
        use_exponential_back_off: each delay is the one before times ``reconnect_delay_exponent``.
        reconnect_delay_exponent: the factor.
        max_reconnect_attempts: after so many rounds over all brokers the connection fails; -1: never; 0: it is not
            made again.
        startup_max_reconnect_attempts: the same for the first connection; -1: as ``max_reconnect_attempts``.
        timeout: after which time without a connection sends fail; -1: they wait.
        randomize: the brokers are tried in random order.
        backup: keep sockets to other brokers open, so that connecting again takes no time.
        backup_pool_size: how many of them.
        priority_backup: go back to a preferred broker as soon as it answers again.
        priority_uris: the preferred brokers, joined by commas; by default the first one of the URL.
        track_messages: keep messages that were sent without an answer, and send them again.
        max_cache_size: how many bytes of those are kept.
        update_uris_supported: take the brokers of the cluster that the broker names into the list.
        rebalance_update_uris: go to another broker when the broker says that the cluster is to be rebalanced.
        reconnect_supported: go to another broker when the broker sends the connection there.
        warn_after_reconnect_attempts: after so many rounds, and their multiples, the log has a warning; 0: never.
    """

    initial_reconnect_delay: int = 10
    max_reconnect_delay: int = 30_000
    use_exponential_back_off: bool = True
    reconnect_delay_exponent: float = 2.0
    max_reconnect_attempts: int = -1
    startup_max_reconnect_attempts: int = -1
    timeout: int = -1
    randomize: bool = True
    backup: bool = False
    backup_pool_size: int = 1
    priority_backup: bool = False
    priority_uris: str = field(default="", metadata={"option": "priorityURIs"})
    track_messages: bool = False
    max_cache_size: int = 128 * 1024
    update_uris_supported: bool = field(default=True, metadata={"option": "updateURIsSupported"})
    rebalance_update_uris: bool = field(default=True, metadata={"option": "rebalanceUpdateURIs"})
    reconnect_supported: bool = True
    warn_after_reconnect_attempts: int = 10

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
    """The prefetch of each kind of consumer; 0 means that ``receive`` asks the broker for each message.

    Attributes:
        queue_prefetch: of a consumer of a queue.
        queue_browser_prefetch: of a browser.
        topic_prefetch: of a consumer of a topic.
        durable_topic_prefetch: of a durable subscription.
        optimize_durable_topic_prefetch: of a durable subscription while ``optimize_acknowledge`` is on.
        all: if not negative, the prefetch of every kind, except where one is given beside it.
    """

    queue_prefetch: int = -1
    queue_browser_prefetch: int = -1
    topic_prefetch: int = -1
    durable_topic_prefetch: int = -1
    optimize_durable_topic_prefetch: int = -1
    all: int = -1

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

    Attributes:
        maximum_redeliveries: after so many redeliveries the message is poison, and a dead letter; -1: no maximum.
        initial_redelivery_delay: before the first redelivery, in ms.
        redelivery_delay: before each later one, in ms.
        maximum_redelivery_delay: what an exponential delay grows to at most, in ms; -1: without a limit.
        use_exponential_back_off: multiply each delay by ``back_off_multiplier``.
        back_off_multiplier: the factor.
        use_collision_avoidance: vary each delay at random.
        collision_avoidance_factor: by which share of it at most, up or down.
        pre_dispatch_check: a transacted consumer gives a message that comes with too many redeliveries back at once.
    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay: int = 1000
    redelivery_delay: int = 1000
    maximum_redelivery_delay: int = -1
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    use_collision_avoidance: bool = False
    collision_avoidance_factor: float = 0.15
    pre_dispatch_check: bool = True

    def __post_init__(self) -> None:
        for limit in ("maximum_redeliveries", "maximum_redelivery_delay"):
            check_whole(limit, getattr(self, limit), -1)
        for delay in ("initial_redelivery_delay", "redelivery_delay"):
            check_whole(delay, getattr(self, delay), 0)
        for flag in ("use_exponential_back_off", "use_collision_avoidance", "pre_dispatch_check"):
            check_flag(flag, getattr(self, flag))
        check_number("back_off_multiplier", self.back_off_multiplier, 0)
        check_number("collision_avoidance_factor", self.collision_avoidance_factor, 0, 1)

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
    """The options of a connection, with ActiveMQ's names and defaults; all times are in milliseconds.

    Attributes:
        client_id: whose durable subscriptions the connection may use; by default an id that is unique.
        client_id_prefix: what that id begins with.
        connection_id_prefix: what the id of the connection begins with, and so those of its messages.
        user_name: the user.
        password: the user's password.
        prefetch_policy: how many messages each kind of consumer gets ahead.
        redelivery_policy: how rolled back messages come again.
        optimize_acknowledge: ``AUTO`` sessions acknowledge in batches: at 65 % of the prefetch, or after the time-out.
        optimize_acknowledge_time_out: after which time the next message sends the batch; 0: never.
        optimized_ack_scheduled_ack_interval: how often a timer sends the batch; 0: never.
        send_acks_async: acknowledgements are not answered by the broker.
        use_async_send: sends are not answered by the broker, not even of persistent messages.
        always_sync_send: every send is answered, also of non-persistent messages and inside transactions.
        send_timeout: how long the answer to a send may take; 0: the ``request_timeout``.
        request_timeout: how long any other answer may take; 0: without a limit.
        connect_response_timeout: how long the broker may take to accept the connection; 0: the ``request_timeout``.
        close_timeout: how long the broker may take to answer a close.
        producer_window_size: how many bytes a producer may have sent that the broker has not taken; 0: no limit.
        exclusive_consumer: consumers are exclusive.
        use_retroactive_consumer: consumers are retroactive.
        dispatch_async: the broker dispatches to consumers from another thread.
        use_compression: bodies are compressed.
        disable_time_stamps_by_default: messages have no timestamp.
        non_blocking_redelivery: messages behind a rolled back one do not wait for it.
        transacted_individual_ack: transacted sessions acknowledge each message by itself.
        check_for_duplicates: messages that were finished and come again are acknowledged again, and not delivered.
        audit_depth: of how many messages of a producer the check knows.
        audit_maximum_producer_number: of how many producers of a destination.
        consumer_expiry_check_enabled: expired messages are not delivered.
        tracing: sends continue the trace of their code, and listeners that of their message (``quire.client.tracing``).
        warn_about_blocked_sends: after which time an unanswered send is reported in the log; 0: never.
    """

    client_id: str = field(default="", metadata={"option": "clientID"})
    client_id_prefix: str = field(default="", metadata={"option": "clientIDPrefix"})
    connection_id_prefix: str = field(default="", metadata={"option": "connectionIDPrefix"})
    user_name: str = ""
    password: str = field(default="", repr=False)
    prefetch_policy: PrefetchPolicy = field(default_factory=PrefetchPolicy)
    redelivery_policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    optimize_acknowledge: bool = False
    optimize_acknowledge_time_out: int = 300
    optimized_ack_scheduled_ack_interval: int = 0
    send_acks_async: bool = True
    use_async_send: bool = False
    always_sync_send: bool = False
    send_timeout: int = 0
    request_timeout: int = 60_000
    connect_response_timeout: int = 0
    close_timeout: int = 15_000
    producer_window_size: int = 0
    exclusive_consumer: bool = False
    use_retroactive_consumer: bool = False
    dispatch_async: bool = True
    use_compression: bool = False
    disable_time_stamps_by_default: bool = False
    non_blocking_redelivery: bool = False
    transacted_individual_ack: bool = False
    check_for_duplicates: bool = True
    audit_depth: int = 2048
    audit_maximum_producer_number: int = 64
    consumer_expiry_check_enabled: bool = True
    tracing: bool = False
    warn_about_blocked_sends: int = 5_000

    @property
    def acks_individually_in_transactions(self) -> bool:
        """Whether transacted consumers acknowledge each message by itself: later ones may overtake it then."""
        return self.transacted_individual_ack or self.non_blocking_redelivery


PREFIX = "consumer."


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options that a destination's name may have; -1 and None: not given there.

    Attributes:
        prefetch_size: how many messages the broker may give ahead.
        maximum_pending_message_limit: how many messages a slow consumer of a topic may have waiting at the broker.
        no_local: without messages of the same connection.
        dispatch_async: the broker dispatches from another thread.
        retroactive: also messages from before the subscription, if the broker keeps some.
        selector: a selector.
        exclusive: the only one that gets messages while it is there.
        priority: consumers with a higher one get messages first.
    """

    prefetch_size: int = -1
    maximum_pending_message_limit: int = 0
    no_local: bool = False
    dispatch_async: bool = True
    retroactive: bool = False
    selector: str = ""
    exclusive: bool = False
    priority: int = 0


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
