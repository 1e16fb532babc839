"""The connection, for threads."""

import ssl
from types import TracebackType
from typing import Self, TypedDict, Unpack

from quire.client import openwire_connection
from quire.client.ack_mode import AckMode
from quire.client.event_loop_thread import EventLoopThread
from quire.client.openwire_connection import Connection as AsyncConnection
from quire.client.openwire_connection import OnError
from quire.client.redelivery_policies import PoliciesByDestination
from quire.client.sync.session import Session
from quire.errors import IllegalState


class ConnectOptions(TypedDict, total=False):
    """The options of ``connect``; see ``quire.client.connect``."""

    user: str
    password: str
    client_id: str
    policies: PoliciesByDestination | None
    on_error: OnError | None
    tls: ssl.SSLContext | None


def connect(url: str = "tcp://127.0.0.1:61616", **options: Unpack[ConnectOptions]) -> "Connection":
    """Make a connection to a broker, for ``with``: it connects when it is entered.

    Args:
        url: the broker, as for ``quire.client.connect``.
        options: those of ``quire.client.connect``. ``on_error`` is called in the connection's thread, and gets a
            message as ``quire.client.ReceivedMessage``: read its attributes only.

    Raises:
        InvalidArgument: the URL cannot be read, or another argument is not what it should be.
    """
    return Connection(openwire_connection.connect(url, **options))


class Connection:
    """A connection to a broker; see ``quire.client.Connection``. It connects when it is entered or opened."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._thread: EventLoopThread | None = None

    def open(self) -> Self:
        """Connect; see ``quire.client.Connection.open``."""
        thread = EventLoopThread("quire-client")
        try:
            thread.run(self._connection.open())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    def session(self, ack: AckMode = AckMode.AUTO) -> Session:
        """Make a session; see ``quire.client.Connection.session``."""
        if self._thread is None:
            raise IllegalState("the connection is not open: use `with sync.connect(...)`, or call its open()")
        return Session(self._thread, self._thread.call(lambda: self._connection.session(ack)))

    @property
    def client_id(self) -> str:
        """Whose durable subscriptions it may use."""
        return self._connection.client_id

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self._connection.broker_name

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket to a broker at present."""
        return self._connection.is_connected

    @property
    def unanswered(self) -> int:
        """How many commands wait for the broker's answer."""
        return self._connection.unanswered

    @property
    def suppressed_duplicates(self) -> int:
        """How many messages came again that the application had finished, and were acknowledged again."""
        return self._connection.suppressed_duplicates

    def close(self) -> None:
        """Close it with its sessions, and end its thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._connection.close())
        finally:
            thread.stop()

    def __enter__(self) -> Self:
        """Connect."""
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
