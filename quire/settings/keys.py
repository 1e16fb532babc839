"""Every setting with its type, its default and what it is for; nothing else knows a default."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quire.settings.kinds import ADDRESS, QUEUE_NAME, SWITCH, TEXT, Kind, choice, count, duration, factor, size


class Key(NamedTuple):
    """One setting.

    Attributes:
        name: ``section.key``, or only ``key`` at the top of the file.
        default: its value when nobody says anything.
        kind: what it may be.
        text: what it is for.
    """

    name: str
    default: Any
    kind: Kind
    text: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "QUIRE_" + self.name.replace(".", "__").upper()


def _key(default: Any, kind: Kind, text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "text": text})


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Section ``broker``."""

    name: str = _key("quire", TEXT, "The broker's name, in its status and its metrics.")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Section ``store``."""

    url: str = _key("", TEXT, "Where messages are kept. Empty: LMDB in the data directory.")
    data: str = _key("data", TEXT, "The data directory: the embedded store, the spool, `broker.json`.")
    sync: Literal["always", "interval", "never"] = _key(
        "always",
        choice("always", "interval", "never"),
        "When a commit is on disk: before it is confirmed, within a second after, or when the system likes.",
    )
    limit: int = _key(100 * 10**9, size(1), "How many bytes of messages the store may hold; then producers are held.")


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Section ``memory``."""

    limit: int = _key(64 * 2**20, size(1), "How many bytes of messages all queues together keep in memory.")
    queue_limit: int = _key(0, size(0), "How many bytes one queue keeps in memory. 0: a queue may use all.")


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Section ``spool``."""

    limit: int = _key(
        10 * 10**9, size(1), "How many bytes of non-persistent messages the spool may hold; then producers are held."
    )


@dataclass(frozen=True, slots=True)
class StompSettings:
    """Section ``stomp``."""

    address: str = _key("127.0.0.1:61613", ADDRESS, "Where STOMP clients connect.")
    max_connections: int = _key(10_000, count(1), "How many clients may be connected at once.")
    connect_timeout: float = _key(10.0, duration(0.001), "How long a new connection may take to send CONNECT.")
    max_headers: int = _key(1000, count(1), "How many headers a frame may have.")
    max_line: int = _key(10 * 1024, size(1), "How long a header line may be.")
    max_body: int = _key(100 * 2**20, size(1), "How large a message's body may be.")
    heart_beat_grace: float = _key(
        2.0, factor(1), "How many of its heart-beat intervals a client may be silent before it counts as gone."
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Section ``http``."""

    address: str = _key("127.0.0.1:8161", ADDRESS, "Where the HTTP API and the metrics listen.")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Section ``producer``."""

    hold_limit: float = _key(
        30.0, duration(0), "How long a producer may be held for want of room; then it gets an error."
    )


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Section ``queue``."""

    prefetch: int = _key(1000, count(1), "How many unacknowledged messages a consumer gets that asks for no number.")
    maximum_redeliveries: int = _key(6, count(0), "How often a message may fail and be delivered again.")
    dead_letter_queue: str = _key("ActiveMQ.DLQ", QUEUE_NAME, "Where messages go that failed too often or expired.")
    dead_letter_expired: bool = _key(
        True, SWITCH, "Whether expired messages become dead letters; otherwise they are dropped."
    )
    expiry_interval: float = _key(1.0, duration(0.001), "How often the broker looks for expired messages.")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Section ``log``."""

    format: Literal["auto", "text", "json"] = _key(
        "auto", choice("auto", "text", "json"), "How log lines look. auto: text on a terminal, JSON lines otherwise."
    )
    level: Literal["debug", "info", "warning", "error"] = _key(
        "info", choice("debug", "info", "warning", "error"), "The least severe log lines written."
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a broker, read and checked."""

    insecure: bool = _key(False, SWITCH, "Whether addresses other than loopback may be bound while there are no users.")
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    stomp: StompSettings = field(default_factory=StompSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    log: LogSettings = field(default_factory=LogSettings)


def _keys(cls: Any, prefix: str = "") -> Iterator[Key]:
    for part in fields(cls):
        if "kind" in part.metadata:
            yield Key(prefix + part.name, part.default, part.metadata["kind"], part.metadata["text"])
        else:
            yield from _keys(part.default_factory, part.name + ".")


KEYS: dict[str, Key] = {key.name: key for key in _keys(Settings)}
"""Every setting, by name, in the order of the reference."""


def store_url(settings: Settings) -> str:
    """The URL of the store: the configured one, or LMDB in the data directory."""
    directory = Path(settings.store.data).resolve() / "store"
    return settings.store.url or directory.as_uri().replace("file:", "lmdb:", 1)


def broker_file(data: str) -> Path:
    """The file in a data directory where a running broker writes its process id and addresses, as JSON."""
    return Path(data) / "broker.json"
