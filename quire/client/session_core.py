"""What a session and its consumers and producers share; the modes of acknowledgement."""

from collections.abc import Iterable
from enum import IntEnum
from importlib import import_module
from types import ModuleType

from quire.client.arguments import refused
from quire.client.channel import Channel, LocalTransaction
from quire.client.destinations import ClientDestination, Stream
from quire.client.message_audit import ConnectionAudit
from quire.client.options import ConnectionOptions
from quire.clock import Clock
from quire.errors import IllegalState, InvalidDestination, QuireError, UnsupportedEnvironment
from quire.protocols.openwire.commands import BaseCommand, LocalTransactionId, SessionId


class AckMode(IntEnum):
    """The acknowledgement mode of a session, with the numbers of JMS.

    - ``AUTO``: the session acknowledges a message before ``receive`` returns it, or after the listener returned.
    - ``DUPS_OK``: as ``AUTO`` for queues; for topics, acknowledgements are sent in batches of half the prefetch.
    - ``CLIENT``: ``message.acknowledge()`` acknowledges everything that the session has delivered so far.
    - ``INDIVIDUAL``: ``message.acknowledge()`` acknowledges that message alone.
    - ``SESSION_TRANSACTED``: the commit acknowledges; the rollback delivers again.
    """

    SESSION_TRANSACTED = 0
    AUTO = 1
    CLIENT = 2
    DUPS_OK = 3
    INDIVIDUAL = 4


def ack_mode(value: object) -> AckMode:
    """The mode that an application gave: one of ``AckMode``, or its number in JMS."""
    if isinstance(value, int) and not isinstance(value, bool) and value in set(AckMode):
        return AckMode(value)
    raise refused("ack", value, ", ".join([f"AckMode.{mode.name}" for mode in AckMode]))


PROVIDER = "Quire"
"""What a broker says that it is, if it has streams."""


def _tracing() -> ModuleType:
    try:
        return import_module("quire.client.tracing")
    except ImportError as error:
        text = f"jms.tracing needs the extra `otel`: pip install 'quire[otel]' ({error})"
        raise UnsupportedEnvironment(text) from error


class SessionCore:
    """The shared parts of a session; channel, audit and options are the connection's.

    Attributes:
        tracing: what continues traces over messages; None if the options do not ask for it.
        last_delivered: the broker's sequence of the last message that a closed consumer delivered.
        error: why the connection was lost; None while it is not.
    """

    def __init__(
        self, session_id: SessionId, mode: AckMode, channel: Channel, audit: ConnectionAudit,
        options: ConnectionOptions, clock: Clock, transaction: LocalTransaction,
    ) -> None:  # fmt: skip
        self.id = session_id
        self.mode = mode
        self.channel = channel
        self.audit = audit
        self.options = options
        self.clock = clock
        self.transaction = transaction
        self.is_closed = False
        self.tracing = _tracing() if options.tracing else None
        self.last_delivered = -1
        self.error: QuireError | None = None

    @property
    def is_transacted(self) -> bool:
        return self.mode is AckMode.SESSION_TRANSACTED

    def transaction_id(self) -> LocalTransactionId | None:
        """The open transaction, begun if need be; None if the session has none."""
        return self.transaction.begun() if self.mode is AckMode.SESSION_TRANSACTED else None

    def post(self, commands: Iterable[BaseCommand]) -> None:
        """Send commands that are not answered. On a connection that is lost they have no meaning, and are dropped."""
        if self.error is None:
            for command in commands:
                self.channel.send(command)

    async def settle(self, acks: Iterable[BaseCommand]) -> None:
        """Send acknowledgements, and await their answers if the options say so."""
        if self.options.send_acks_async:
            self.post(acks)
            return
        for ack in acks:
            await self.channel.request(ack)

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        if self.is_closed:
            raise IllegalState("the session is closed")

    def check_takes(self, destination: ClientDestination) -> None:
        """Raise an error if the broker does not have that kind of destination: ActiveMQ would make a topic of it."""
        if isinstance(destination, Stream) and self.channel.provider != PROVIDER:
            broker = self.channel.provider or "unknown"
            text = f"{destination} is a stream of Quire, and the broker is {broker}: use Queue or Topic with it"
            raise InvalidDestination(text, destination=str(destination))
