"""The connection: sessions over one socket to a broker, or to one broker after the other.

Its id is unique, and in the form of ActiveMQ's, which brokers and tools read. One temporary queue of the connection
takes the answers to all requests.
"""

import asyncio
import contextlib
import inspect
import itertools
import logging
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from random import Random, SystemRandom
from types import TracebackType
from typing import Self

from quire import logs
from quire.client.arguments import check_plain_function, check_text, refused
from quire.client.channel import Channel, LocalTransaction, error_of
from quire.client.destinations import ClientDestination, TemporaryQueue, to_wire
from quire.client.message import Body, Message, ReceivedMessage
from quire.client.message_audit import ConnectionAudit
from quire.client.options import PoliciesByDestination, RedeliveryPolicies, read_url
from quire.client.producer import Producer
from quire.client.session import Session
from quire.client.session_core import AckMode, SessionCore, ack_mode
from quire.clock import Clock, SystemClock
from quire.errors import (
    BrokerUnreachable,
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    QuireError,
    RequestUnanswered,
    UnknownSubscription,
)
from quire.protocols.openwire.commands import (
    BrokerInfo,
    ConnectionErrorCommand,
    ConnectionInfo,
    ConsumerControl,
    DestinationInfo,
    DestinationOperation,
    MessageDispatch,
    ProducerAck,
    RemoveInfo,
    RemoveSubscriptionInfo,
)
from quire.protocols.openwire.structures import BaseCommand, ConnectionId, ConsumerId, SessionId

_NUMBERS = itertools.count(1)


def connection_id(clock: Clock, prefix: str = "") -> str:
    """A new id.

    Args:
        clock: for the time in it.
        prefix: what it begins with; ``ID`` by default.
    """
    host = socket.gethostname().encode("ascii", "ignore").decode().replace(":", "") or "localhost"
    return f"{prefix or 'ID'}:{host}-{secrets.randbelow(10**9)}-{clock.now_ms()}-{next(_NUMBERS)}:1"


class Requestor:
    """Sends requests, and gives each answer to who waits for it.

    Args:
        session: a session of its own, in mode ``AUTO``.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._answers: TemporaryQueue | None = None
        self._producer: Producer | None = None
        self._lock = asyncio.Lock()

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Send a request, and wait for its answer.

        Args:
            destination: who answers there.
            body: the request.
            timeout: how long the answer may take, in seconds; None: without a limit.

        Raises:
            RequestUnanswered: no answer came in time.
        """
        answers, producer = await self._opened()
        correlation_id = f"{answers.name}:{next(self._numbers)}"
        answer: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        try:
            async with asyncio.timeout(timeout):
                await producer.send(body, destination=destination, persistent=False, time_to_live=timeout,
                                    reply_to=answers, correlation_id=correlation_id)  # fmt: skip
                return await answer
        except TimeoutError as error:
            text = f"no answer from {destination} within {timeout:g} s"
            raise RequestUnanswered(text, destination=str(destination), timeout=timeout) from error
        finally:
            del self._waiting[correlation_id]

    async def _opened(self) -> tuple[TemporaryQueue, Producer]:
        async with self._lock:
            if self._answers is None or self._producer is None:
                answers = await self._session.temporary_queue()
                await self._session.consumer(answers, listener=self._answered)
                self._answers, self._producer = answers, self._session.producer()
            return self._answers, self._producer

    async def _answered(self, message: ReceivedMessage) -> None:
        waiting = self._waiting.get(message.correlation_id or "")
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


OnError = Callable[[Exception], object] | Callable[[Exception, ReceivedMessage | None], object]
"""What is called with errors that no call raises; if it takes a second argument, it gets the message of a listener."""


def connect(
    url: str = "tcp://127.0.0.1:61616", *, user: str = "", password: str = "", client_id: str = "",
    policies: PoliciesByDestination | None = None, on_error: OnError | None = None,
    tls: ssl.SSLContext | None = None, clock: Clock | None = None,
) -> "Connection":  # fmt: skip
    """Make a connection to a broker, for ``async with``: it connects when it is entered.

    Args:
        url: ``tcp://HOST:PORT``, ``ssl://HOST:PORT`` or ``failover:(tcp://A:1,tcp://B:2)``, with ActiveMQ's options.
        user: the user, if the broker has users.
        password: the user's password.
        client_id: whose durable subscriptions the connection may use.
        policies: redelivery policies by destination, or by its text; names may have wildcards.
        on_error: called with errors that no call raises: of a listener, of a command that is not answered, or of a
            connection that is lost for good. It gets the error, and if it takes a second argument, the message whose
            listener raised it, or None. With ``quire.client.sync`` it is called in the connection's thread: of the
            message, read the attributes only.
        tls: for ``ssl://``; None: the authorities of the file that QUIRE_TLS_CA names, or the system's.
        clock: for expirations and limits.

    Raises:
        InvalidArgument: the URL cannot be read, or another argument is not what it should be.
    """
    return Connection(url, user, password, client_id, policies, on_error, tls, clock or SystemClock())


class Connection:
    """A connection to a broker; ``connect`` makes one.

    Heart-beats are sent and checked by the event loop. Work that keeps the loop busy for longer than the time of
    inactivity (30 s) makes the broker close the connection: give such work to a thread, or use ``quire.client.sync``,
    whose connections have a loop of their own.

    Attributes:
        client_id: whose durable subscriptions it may use; one that is unique if none was given.
        broker_name: the name of the broker, once it has said it.
    """

    def __init__(
        self, url: str, user: str, password: str, client_id: str,
        policies: PoliciesByDestination | None, on_error: OnError | None, tls: ssl.SSLContext | None,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._url = read_url(url)
        for argument, value in (("user", user), ("password", password), ("client_id", client_id)):
            check_text(argument, value)
        if not isinstance(tls, ssl.SSLContext | None):
            raise refused("tls", tls, "an ssl.SSLContext; for ssl:// without one, None")
        given = {"user_name": user, "password": password, "client_id": client_id}
        self._options = replace(self._url.options, **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]
        self._tls = tls
        self._clock = clock
        self._on_error = None if on_error is None else _reporter(on_error)
        self._random: Random = SystemRandom()
        self._id = ConnectionId(connection_id(clock, self._options.connection_id_prefix))
        self.client_id = self._options.client_id or connection_id(clock, self._options.client_id_prefix)
        self.broker_name = ""
        self.policies = RedeliveryPolicies(self._options.redelivery_policy, policies)
        self.may_optimize = self._options.optimize_acknowledge
        options = self._options
        self._audit = ConnectionAudit(
            options.audit_depth, options.audit_maximum_producer_number, options.check_for_duplicates
        )
        self._sessions: dict[int, Session] = {}
        self._session_numbers = itertools.count(1)
        self._transaction_numbers = itertools.count(1)
        self._temporary_numbers = itertools.count(1)
        self._channel: Channel | None = None
        self._requestor: Requestor | None = None
        self._last_delivered = -1

    async def open(self) -> Self:
        """Connect; ``async with`` does it too.

        Raises:
            BrokerUnreachable: no broker answers.
            AccessRefused: the broker refused the user.
            QuireError: the broker refused the connection, since the ``client_id`` is in use say.
        """
        if self._channel is not None:
            raise IllegalState("the connection was opened before: make a new one with connect")
        self._channel = Channel(replace(self._url, options=self._options), self, self._clock, self._random, self._tls)
        await self._channel.open(ConnectionInfo(
            connection_id=self._id, client_id=self.client_id, user_name=self._options.user_name or None,
            password=self._options.password or None, manageable=True, client_master=True,
            fault_tolerant=self._url.failover is not None,
        ))  # fmt: skip
        return self

    def session(self, ack: AckMode = AckMode.AUTO) -> Session:
        """Make a session.

        Args:
            ack: when messages are acknowledged.

        Raises:
            IllegalState: the connection is not open.
            InvalidArgument: it is none of the modes.
        """
        channel, mode = self._opened(), ack_mode(ack)
        number = next(self._session_numbers)
        transaction = LocalTransaction(channel, self._id, self._transaction_numbers)
        core = SessionCore(
            SessionId(self._id.value, number), mode, channel, self._audit, self._options, self._clock, transaction
        )
        session = Session(core, self, self._random)
        self._sessions[number] = session
        return session

    @property
    def unanswered(self) -> int:
        """How many commands wait for the broker's answer: while it holds sends, this does not fall."""
        return 0 if self._channel is None else len(self._channel.unanswered)

    @property
    def oldest_unanswered_age(self) -> float:
        """For how long the oldest of those has been waiting, in seconds."""
        return 0.0 if self._channel is None else self._channel.unanswered.oldest_age()

    @property
    def suppressed_duplicates(self) -> int:
        """How many messages came again that the application had finished, and were acknowledged again."""
        return self._audit.suppressed

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket to a broker at present."""
        return self._channel is not None and self._channel.is_connected

    @property
    def address(self) -> str | None:
        """The address of the present broker."""
        return None if self._channel is None or self._channel.address is None else str(self._channel.address)

    async def close(self) -> None:
        """Close it with its sessions. Open transactions are rolled back."""
        channel = self._channel
        if channel is None or channel.is_ended:
            return
        if not channel.is_connected:
            # Between two brokers nothing can be said to either; what is unanswered fails.
            error = BrokerUnreachable("the connection was closed while no broker answered")
            for session in list(self._sessions.values()):
                session.failed(error)
            await channel.close()
            return
        for session in list(self._sessions.values()):
            try:
                await session.close()
            except QuireError as error:
                self.report(error)
        removal = RemoveInfo(object_id=self._id, last_delivered_sequence_id=self._last_delivered)
        try:
            await channel.request(removal, self._options.close_timeout / 1000)
        except QuireError as error:
            self.report(error)
        finally:
            await channel.close()

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def temporary(self, kind: type[ClientDestination]) -> ClientDestination:
        """Of the session: a new temporary destination."""
        made = kind(f"{self._id}:{next(self._temporary_numbers)}")
        await self._change_destination(made, DestinationOperation.ADD)
        return made

    async def delete_temporary(self, destination: ClientDestination) -> None:
        """Of the session: delete a temporary destination."""
        if not destination.is_temporary:
            raise InvalidArgument(f"{destination} is not temporary", argument="destination")
        await self._change_destination(destination, DestinationOperation.REMOVE)

    async def unsubscribe(self, name: str) -> None:
        """Of the session: delete a durable subscription."""
        info = RemoveSubscriptionInfo(connection_id=self._id, subscription_name=name, client_id=self.client_id)
        try:
            await self._opened().request(info)
        except InvalidDestination as error:
            # So does ActiveMQ say it.
            raise UnknownSubscription(str(error), **error.data) from error

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Of the session: send a request and wait for its answer."""
        if self._requestor is None:
            self._requestor = Requestor(self.session())
        return await self._requestor.ask(destination, body, timeout)

    def session_closed(self, core: SessionCore) -> None:
        """Of the session: it is closed."""
        self._sessions.pop(core.id.value, None)
        self._last_delivered = max(self._last_delivered, core.last_delivered)

    def report(self, error: Exception, message: ReceivedMessage | None = None) -> None:
        """Of the session: an error that no call raises, and the message whose listener raised it."""
        if self._on_error is None:
            if message is None:  # else it is in the log
                logs.event("client.error", f"{type(error).__name__}: {error}", logging.WARNING)
            return
        try:
            self._on_error(error, message)
        except Exception as defect:
            logs.failure("client.error", f"on_error raised {defect!r}", defect)

    def dispatched(self, command: BaseCommand) -> None:
        """Of the channel: a command came that is no answer."""
        if isinstance(command, MessageDispatch):
            consumer_id = command.consumer_id
            session = None if consumer_id is None else self._sessions.get(consumer_id.session_id)
            if session is not None and consumer_id is not None:
                consumer = session.consumers.get(consumer_id.value)
                if consumer is not None:
                    consumer.dispatched(command)
        elif isinstance(command, ConsumerControl):
            self._controlled(command)
        elif isinstance(command, ProducerAck) and command.producer_id is not None:
            session = self._sessions.get(command.producer_id.session_id)
            producer = None if session is None else session.producers.get(command.producer_id.value)
            if producer is not None:
                producer.acknowledged(command.size)
        elif isinstance(command, BrokerInfo):
            self._introduced(command)
        elif isinstance(command, ConnectionErrorCommand):
            self.report(error_of(command.exception))

    def interrupted(self) -> None:
        """Of the channel: the socket is lost, and will be replaced."""
        self._audit.interrupted()
        error = BrokerUnreachable("the connection to the broker was lost")
        for session in list(self._sessions.values()):
            session.interrupted(error)

    def resumed(self) -> None:
        """Of the channel: there is a socket again."""
        for session in list(self._sessions.values()):
            session.resumed()

    def failed(self, error: QuireError) -> None:
        """Of the channel: the connection is lost for good."""
        for session in list(self._sessions.values()):
            session.failed(error)
        self.report(error)

    def _introduced(self, info: BrokerInfo) -> None:
        self.broker_name = info.broker_name or ""
        if info.fault_tolerant_configuration:
            # Acknowledgements that wait would be lost with the broker that another one takes over from.
            self.may_optimize = False
            for session in self._sessions.values():
                session.switch_optimizing_off()

    def _controlled(self, control: ConsumerControl) -> None:
        consumer_id: ConsumerId | None = control.consumer_id
        session = None if consumer_id is None else self._sessions.get(consumer_id.session_id)
        consumer = None if session is None or consumer_id is None else session.consumers.get(consumer_id.value)
        if consumer is not None:
            consumer.controlled(control)

    async def _change_destination(self, destination: ClientDestination, operation: DestinationOperation) -> None:
        await self._opened().request(DestinationInfo(
            connection_id=self._id, destination=to_wire(destination), operation_type=int(operation)
        ))  # fmt: skip

    def _opened(self) -> Channel:
        if self._channel is None:
            raise IllegalState("the connection is not open: use `async with connect(...)`, or await its open()")
        return self._channel


def _reporter(on_error: Callable[..., object]) -> Callable[[Exception, ReceivedMessage | None], object]:
    """A function of an error and a message, from one that may take the error only."""
    check_plain_function("on_error", on_error, "a plain function of an error, and of a message if you like")
    with contextlib.suppress(ValueError):  # what is not written in Python may have no signature
        parameters = inspect.signature(on_error).parameters.values()
        positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
        if len(positional) > 1 and (positional[1].default is positional[1].empty or positional[1].name == "message"):
            return on_error
    return lambda error, message: on_error(error)
