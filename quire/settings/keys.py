"""Every setting with its type, its default and its meaning, and where values come from: file, environment, flags.

Defaults are defined here only.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from quire.errors import InsecureAddress, InvalidSettings, QuireError
from quire.message import MAX_VALUE
from quire.options import (
    Bytes,
    Count,
    Factor,
    Positive,
    Seconds,
    SomeBytes,
    SomeSeconds,
    duration,
    made,
    option,
    size,
)
from quire.settings.key import (
    Address,
    Algorithms,
    Key,
    PatternText,
    Refused,
    Setting,
    TimeOfDay,
    VirtualPrefix,
    is_loopback,
    keys_of,
    split_address,
    throw,
    unknown,
)
from quire.settings.policy import Composite, Policies, Policy, read_composites, read_policies
from quire.settings.users import Rule, User, read_rules, read_users


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    name: str = option("quire", "The broker's name, in its status and its metrics.")
    shards: Count = option(
        0, "In how many shards the broker keeps its destinations on this machine: each is a process with an embedded "
        "store of its own. 0: as many as the data directory has; 1 in a new one.",
    )  # fmt: skip
    expiry_interval: SomeSeconds = option(1.0, "How often the broker looks for expired messages.")
    max_destinations: Positive = option(
        50_000, "The maximum number of destinations: queues, topics, partitions of streams, temporary destinations."
    )
    max_durable_subscriptions: Positive = option(
        50_000, "The maximum number of durable subscriptions; a consumer group counts once for each partition."
    )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    url: str = option("", "The URL of the store. Empty: LMDB in the data directory.")
    data: str = option("data", "The data directory: the embedded store, the spool, `broker.json`.")
    sync: Literal["always", "interval", "never"] = option(
        "always", "When a commit is on disk: before it is confirmed, within a second, or when the operating system "
        "decides.",
    )  # fmt: skip
    connect_timeout: Seconds = option(
        30.0, "How long a broker that starts waits for a database server that does not answer."
    )
    limit: SomeBytes = option(
        100 * 10**9, "How many bytes of messages the store may have before the broker holds producers."
    )
    disk_free_limit: Bytes = option(
        64 * 2**20, "The available space that the disks of the store and of the spool must have, or producers are "
        "held. A quarter of it, at most 64MiB, is kept in reserve on each. 0: no check and no reserve.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemorySettings:
    limit: SomeBytes = option(64 * 2**20, "How many bytes of messages all destinations together may keep in memory.")


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    limit: SomeBytes = option(
        10 * 10**9, "How many bytes of non-persistent messages the spool may have before the broker holds producers."
    )


@dataclass(frozen=True, slots=True)
class StompSettings:
    address: Address = option("127.0.0.1:61613", "The address for STOMP clients.")
    max_connections: Positive = option(10_000, "How many clients may be connected at once.")
    connect_timeout: SomeSeconds = option(10.0, "How long a new connection may take to send CONNECT.")
    max_headers: Positive = option(1000, "The maximum number of headers of a frame.")
    max_line: SomeBytes = option(10 * 1024, "The maximum length of a header line.")
    max_body: Annotated[int, size(1, MAX_VALUE)] = option(100 * 2**20, "The maximum size of a message's body.")
    heart_beat_grace: Factor = option(
        2.0, "How many of its heart-beat intervals a client may be silent before it is disconnected."
    )


@dataclass(frozen=True, slots=True)
class OpenWireSettings:
    address: Address = option("127.0.0.1:61616", "The address for OpenWire clients: those of ActiveMQ, and JMS.")
    max_connections: Positive = option(10_000, "How many clients may be connected at once.")
    connect_timeout: SomeSeconds = option(30.0, "How long a new connection may take to send ConnectionInfo.")
    max_frame_size: Annotated[int, size(1, MAX_VALUE)] = option(
        100 * 2**20, "The maximum size of a frame: a message with its properties."
    )
    max_inactivity: Seconds = option(
        30.0, "How long a client may be silent before it is disconnected, if it agrees "
        "(`wireFormat.maxInactivityDuration`).",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HttpSettings:
    address: Address = option("127.0.0.1:8161", "The address of the HTTP API and the metrics.")
    max_connections: Positive = option(1000, "How many HTTP connections may be open at once.")
    names: str = option(
        "", "The names, separated by spaces, under which the HTTP API and the web console may be asked for, beside "
        "addresses and `localhost`. They count while there are no users, and on loopback; else every name will do.",
    )  # fmt: skip
    websocket_origins: str = option(
        "", "The other sites whose pages may speak STOMP over WebSocket, separated by spaces: "
        "`https://app.example.com`. Pages of the broker's own address always may.",
    )  # fmt: skip
    header_timeout: SomeSeconds = option(20.0, "How long the head of an HTTP request may take to arrive.")
    body_timeout: SomeSeconds = option(
        30.0, "How long the body of an HTTP request may take to arrive; after that at least 1 kB a second must arrive."
    )


@dataclass(frozen=True, slots=True)
class BulkSettings:
    address: Address = option(
        "127.0.0.1:0", "The address of the bulk server, from which Spark reads messages. Default: the host of "
        "http.address, and a free port. Further processes have the ports after a fixed one.",
    )  # fmt: skip
    processes: Positive = option(
        1, "How many processes the bulk server has. Readers spread over them, and each uses at most one core."
    )
    idle_limit: Annotated[float, duration(1)] = option(
        300.0, "How long the bulk server may be idle before it ends; the broker starts it again on demand."
    )


@dataclass(frozen=True, slots=True)
class TlsSettings:
    certificate: str = option(
        "", "The file with the certificate of the broker, PEM, followed by those that signed it. With it all ports "
        "take TLS. Empty: no TLS. SIGHUP reads the files of this section again.",
    )  # fmt: skip
    key: str = option("", "The file with the key of the certificate, PEM, without a password. Empty: the same file.")
    client_ca: str = option("", "The file with the authorities whose client certificates are accepted, PEM.")
    client_certificates: Literal["none", "optional", "required"] = option(
        "none", "Whether the broker requests certificates of clients."
    )
    plain: Literal["nowhere", "loopback", "everywhere"] = option(
        "loopback", "From where clients may connect without TLS once there is a certificate."
    )

    def takes_plain(self, host: str) -> bool:
        """Whether a client at a host may connect without TLS."""
        from_near = self.plain == "loopback" and is_loopback(host.partition("%")[0])
        return not self.certificate or self.plain == "everywhere" or from_near


@dataclass(frozen=True, slots=True)
class LimitSettings:
    connections: Positive = option(20_000, "The maximum number of connections of all protocols together.")
    connections_per_address: Count = option(0, "The maximum number of connections from one address. 0: no limit.")
    connections_per_user: Count = option(0, "The maximum number of connections of one user. 0: no limit.")
    destinations_per_user: Count = option(
        0, "How many destinations of those that a user has created may be there at once. 0: no limit."
    )
    schedules_per_user: Count = option(
        1000, "How many messages that are sent without end (`AMQ_SCHEDULED_REPEAT` -1, or a cron entry) a user may "
        "have scheduled since the start of the broker. 0: no limit.",
    )  # fmt: skip
    unauthenticated: Positive = option(
        500, "With TLS: how many connections may be agreeing on TLS or logging in at once. Further ones wait."
    )
    unauthenticated_per_address: Positive = option(100, "How many of them may come from one address.")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    enabled: bool = option(True, "Whether the broker starts the web console, if it is installed.")
    address: Address = option("127.0.0.1:8162", "The address of the web console.")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    hold_limit: Seconds = option(30.0, "How long a producer may be held before it gets an error.")
    id_cache_size: Positive = option(
        20_000, "How many producers that number their sends the broker remembers; it forgets the one that sent least "
        "recently.",
    )  # fmt: skip
    id_max_age: Seconds = option(
        0.0, "How long a producer that numbers its sends may be silent before the broker forgets it. 0: no limit."
    )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_messages: Positive = option(100_000, "How many messages a transaction may send and acknowledge.")
    max_size: Bytes = option(0, "How many bytes of messages a transaction may send. 0: as many as memory.limit.")
    max_age: Seconds = option(600.0, "How long a transaction may be open before the broker rolls it back. 0: no limit.")


@dataclass(frozen=True, slots=True)
class VirtualSettings:
    virtual_topics: bool = option(
        True, "Whether messages sent to a virtual topic also go to the queues named after it."
    )
    virtual_topic_pattern: PatternText = option("VirtualTopic.>", "Which topics are virtual topics.")
    virtual_topic_prefix: VirtualPrefix = option(
        "Consumer.*.", "The prefix of a virtual topic's name in the names of its queues."
    )


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    enabled: bool = option(
        False, "Whether clients must log in although no users are configured; a broker without users then makes "
        "`admin`.",
    )  # fmt: skip
    file: str = option(
        "", "The file of the users, rules and tokens made at run time. Empty: `security.json` in `store.data`."
    )
    user_id: bool = option(
        False, "Whether messages over STOMP and OpenWire get the user who sends them in `JMSXUserID`."
    )
    audit_data: Literal["none", "refused", "all"] = option(
        "refused", "Which reads, sends and creations the audit log has, once for each destination of a connection."
    )
    audit_size: Annotated[int, size(1024)] = option(
        10 * 2**20, "The size at which the broker begins a new file of the audit log, `DATA/audit.log`."
    )
    audit_count: Count = option(5, "How many older files of the audit log the broker keeps.")


@dataclass(frozen=True, slots=True)
class JwtSettings:
    issuer: str = option("", "The issuer (`iss`) of access tokens that the broker accepts. Empty: it accepts none.")
    audience: str = option("", "The audience (`aud`) that an access token must have.")
    keys: str = option("", "The keys of the issuer, a JWKS: a file, or an https URL.")
    algorithms: Algorithms = option("RS256 PS256 ES256 EdDSA", "The algorithms of signatures that the broker accepts.")
    name_claim: str = option("sub", "The claim that has the name of the user.")
    roles_claim: str = option("roles", "The claim that has the roles: a list, or a text with blanks between.")
    refresh: Annotated[float, duration(1)] = option(300.0, "How often the broker reads the keys again.")


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    max_destinations: Count = option(
        1000, "How many queues, how many topics, how many streams and how many consumer groups have metrics of their "
        "own; those of the others are added up.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BackupSettings:
    at: TimeOfDay = option("", "When the broker backs its store up, each day. Empty: never.")
    directory: str = option("backups", "Where the backups are: not on the disk of the store, if that may fail.")
    keep: Positive = option(7, "How many backups the broker keeps; it removes the oldest ones.")


@dataclass(frozen=True, slots=True)
class TracingSettings:
    enabled: bool = option(False, "Whether the broker exports spans of traced messages. Needs the extra `otel`.")
    endpoint: str = option("http://127.0.0.1:4318/v1/traces", "Where an OTLP collector takes spans, over HTTP.")
    max_rate: Positive = option(1000, "How many spans a second the broker makes; it leaves the others out.")


@dataclass(frozen=True, slots=True)
class LogSettings:
    format: Literal["auto", "text", "json"] = option(
        "auto", "The format of the log. auto: text on a terminal, JSON lines otherwise."
    )
    level: Literal["debug", "info", "warning", "error"] = option("info", "The lowest level that is logged.")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    name: str = option("", "The name of this broker in its cluster. Empty: the name of the machine.")
    store: str = option(
        "", "The PostgreSQL database of the cluster, `postgresql://user@host/name`: all its brokers have the same."
    )
    stores: str = option(
        "", "The databases of the shards, separated by spaces, used in turn. Empty: all in `cluster.store`. Fixed "
        "once the cluster is formed.",
    )  # fmt: skip
    shards: Positive = option(6, "How many shards a new cluster has. Fixed once the cluster is formed.")
    address: Address = option(
        "127.0.0.1:0", "Where the shards of this broker are reached by other brokers. Port 0: free ports; else a "
        "broker takes two for each shard from this one on, and two more.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a broker, read and checked."""

    insecure: bool = option(False, "Whether to allow other addresses than loopback while there are no users.")
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    stomp: StompSettings = field(default_factory=StompSettings)
    openwire: OpenWireSettings = field(default_factory=OpenWireSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    bulk: BulkSettings = field(default_factory=BulkSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    transaction: TransactionSettings = field(default_factory=TransactionSettings)
    virtual: VirtualSettings = field(default_factory=VirtualSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    jwt: JwtSettings = field(default_factory=JwtSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    backup: BackupSettings = field(default_factory=BackupSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    log: LogSettings = field(default_factory=LogSettings)
    policies: Policies = field(default_factory=Policies)
    composites: tuple[Composite, ...] = ()
    users: tuple[User, ...] = ()
    rules: tuple[Rule, ...] = ()


def _keys() -> Iterator[Key]:
    for key in keys_of(Settings):
        yield key._replace(name=key.name.replace("policies.base.", "policy."))


KEYS: dict[str, Key] = {key.name: key for key in _keys()}  # every setting, by name, in the order of the reference


def store_url(settings: Settings) -> str:
    """The URL of the store: the configured one, or LMDB in the data directory."""
    directory = Path(settings.store.data).resolve() / "store"
    return settings.store.url or directory.as_uri().replace("file:", "lmdb:", 1)


def broker_file(data: str) -> Path:
    """The file in a data directory where a running broker writes its process id and addresses, as JSON."""
    return Path(data) / "broker.json"


def security_file(settings: Settings) -> Path | None:
    """The file of users, rules and tokens that are made while the broker runs; a store in memory has none."""
    if settings.security.file:
        return Path(settings.security.file)
    return None if settings.store.url == "memory:" else Path(settings.store.data) / "security.json"


def audit_file(settings: Settings) -> Path | None:
    """The audit log; a store in memory has none."""
    return None if settings.store.url == "memory:" else Path(settings.store.data) / "audit.log"


def local_token_file(data: str) -> Path:
    """The file in a data directory with the token of the command line on the same machine."""
    return Path(data) / "cli.token"


ENTRIES = ("policies", "composites", "users", "rules")  # what the file has besides keys: arrays of tables

LAST_PORT = 65535

EXAMPLES = """
# Policies of some destinations: a pattern, and any keys of [policy]. Of several entries that match, the most
# specific one wins, key by key. Without queue:// or topic:// an entry applies to both.

#[[policies]]
#destination = "queue://orders.>"
#maximum_redeliveries = 3
#dead_letter_strategy = "individual"

# Composite destinations: the broker forwards their messages to other destinations.

#[[composites]]
#queue = "orders"
#forward_to = ["queue://billing", {destination = "topic://orders.large", selector = "amount > 1000"}]
#forward_only = true

# Users: add password_hash = "...", which `quire user hash` prints, or certificates = ["CN=alice"]. `quire user add`
# makes users while the broker runs.

#[[users]]
#name = "alice"
#roles = ["monitor"]

# Access rules: without one that matches an action is refused, and of several that match a deny wins.

#[[rules]]
#subject = "user:alice"
#allow = ["read", "write", "create"]
#destination = "queue://orders.>"
"""


def faults(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> list[QuireError]:
    """All that ``load``, with the same arguments, would refuse; none if the settings are valid."""
    found: list[QuireError] = []
    try:
        load(file, environ, flags, found.append)
    except QuireError as error:
        found.append(error)
    return found


def load(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], refused: Refused = throw
) -> Settings:
    """Read the settings of a broker.

    Args:
        file: a TOML file, or None.
        environ: the environment.
        flags: values from the command line by key (``stomp.address``); None means not given.
        refused: is told each fault; by default the first is raised.

    Returns:
        The settings; flags override the environment, the environment overrides the file.

    Raises:
        InvalidSettings: a key is unknown or a value is not allowed; ``data`` has ``key``, ``value`` and ``origin``.
        InsecureAddress: an address is not loopback and ``insecure`` is false; ``data`` has ``key`` and ``address``.
    """
    found = explain(file, environ, flags, refused)
    values = {setting.key: setting.value for setting in found}
    document = _document(file)
    users = read_users(document.get("users", []), f"file {file}", refused)
    protected = values["insecure"] or values["security.enabled"] or values["jwt.issuer"]
    protected = protected or document.get("users") or _has_users(values)
    _check_addresses(values, bool(protected), refused)
    policies = Policies(
        Policy(**{name.removeprefix("policy."): values.pop(name) for name in KEYS if name.startswith("policy.")}),
        read_policies(document.get("policies", []), f"file {file}", refused),
        {setting.key.removeprefix("policy."): setting.origin for setting in found},
    )
    composites = read_composites(document.get("composites", []), f"file {file}", refused)
    rules = read_rules(document.get("rules", []), f"file {file}", refused)
    return made(Settings, values | {"policies": policies, "composites": composites, "users": users, "rules": rules})


_ADDRESSES = tuple(f"{door}.address" for door in ("stomp", "openwire", "http", "bulk", "console", "cluster"))


def _check_addresses(values: Mapping[str, Any], protected: bool, refused: Refused) -> None:
    """Without users addresses are loopback ones. Each process of the bulk server has a port behind the one before."""
    for key in _ADDRESSES:
        if not protected and not is_loopback(split_address(values[key])[0]):
            text = f"{key} = {values[key]} is not loopback, and no users are configured"
            refused(InsecureAddress(text, key=key, address=values[key]))
    address, processes = values["bulk.address"], values["bulk.processes"]
    last = split_address(address)[1] + processes - 1
    if split_address(address)[1] and last > LAST_PORT:
        text = (
            f"bulk.processes = {processes} is not allowed: with bulk.address = {address} the last port would be {last}"
        )
        refused(InvalidSettings(text, key="bulk.processes", value=processes))


def _has_users(values: Mapping[str, Any]) -> bool:
    """Whether users were made while the broker ran before. If the file is damaged, the start says so later."""
    directory, file = values["store.data"], values["security.file"]
    try:
        return bool(json.loads((Path(file) if file else Path(directory) / "security.json").read_bytes())["users"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def explain(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object], refused: Refused = throw
) -> list[Setting]:
    """Every setting with its value and origin, in the order of ``KEYS``; the arguments are those of ``load``."""
    found = {key.name: Setting(key.name, key.default, "default") for key in KEYS.values()}
    for name, value, origin in (*_from_file(file), *_from_environment(environ, refused), *_from_flags(flags)):
        try:
            if name not in KEYS:
                raise unknown(name, origin, (*KEYS, *ENTRIES))
            found[name] = KEYS[name].read(value, origin)
        except InvalidSettings as error:
            refused(error)
    bulk, http = found["bulk.address"], found["http.address"]
    if bulk.origin == "default" and http.origin != "default":  # clients of one are clients of the other
        found[bulk.key] = bulk._replace(value=http.value.rpartition(":")[0] + ":0", origin=http.key)
    return list(found.values())


def commented_file() -> str:
    """A settings file with every key, its default and its meaning, and examples of entries, all commented out."""
    lines = ["# Settings of a Quire broker. Each line shows a default; remove the # to change it."]
    section = ""
    for key in KEYS.values():
        head, dot, name = key.name.rpartition(".")
        if dot and head != section:
            section = head
            lines += ["", f"[{section}]"]
        lines += ["", f"# {key.text}", f"# Allowed: {key.kind.allowed}.", f"#{name} = {key.kind.write(key.default)}"]
    return "\n".join(lines) + "\n" + EXAMPLES


def _document(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML, too many digits
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSettings(f"the settings file {file} cannot be read: {reason}", file=str(file)) from error


def _from_file(file: Path | None) -> Iterator[Setting]:
    for name, value in _document(file).items():
        if isinstance(value, dict) and name not in (*KEYS, *ENTRIES):
            yield from (Setting(f"{name}.{key}", inner, f"file {file}") for key, inner in value.items())
        elif name not in ENTRIES:
            yield Setting(name, value, f"file {file}")


def _from_environment(environ: Mapping[str, str], refused: Refused) -> Iterator[Setting]:
    names = {key.variable: key.name for key in KEYS.values()}
    slips = {variable.replace("__", "_"): variable for variable in names}
    for variable in sorted(name for name in environ if name.startswith("QUIRE_")):
        origin = f"environment {variable}"
        if variable in names:
            yield Setting(names[variable], environ[variable], origin)
        elif "__" in variable:
            refused(unknown(variable.removeprefix("QUIRE_").replace("__", ".").lower(), origin, KEYS))
        elif variable in slips:
            text = f"{variable} is not a setting; did you mean {slips[variable]}, with two underscores?"
            refused(InvalidSettings(text, key=names[slips[variable]], origin=origin))


def _from_flags(flags: Mapping[str, object]) -> Iterator[Setting]:
    return (Setting(name, value, "flag") for name, value in flags.items() if value is not None)
