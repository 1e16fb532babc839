"""The commands of one connection and their answers, over one socket after the other.

``Unanswered`` has the commands whose answers are awaited, each with its limit of time. ``ReplayState`` has what a
broker is told again when the connection is made again: connection, sessions, consumers, producers, open transactions.
The exceptions of a broker, which OpenWire carries by the name of their class, are errors of Quire (``RemoteError``).
"""

import asyncio
import contextlib
import itertools
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from quire import logs
from quire.client.link import BackupLinks, Link, open_link
from quire.client.options import BrokerAddress, BrokerAddresses, BrokerUrl, FailoverOptions
from quire.client.remote import error_classes
from quire.clock import Clock
from quire.errors import (
    AccessRefused,
    BrokerBusy,
    BrokerUnreachable,
    DestinationInUse,
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    InvalidSelector,
    ProducerHeld,
    QuireError,
    TransactionRolledBack,
    UnknownTransaction,
)
from quire.protocols.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTempDestination,
    ActiveMQTextMessage,
    BaseCommand,
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerControl,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    ExceptionResponse,
    KeepAliveInfo,
    LocalTransactionId,
    Message,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    ShutdownInfo,
    Throwable,
    TransactionId,
    TransactionInfo,
    TransactionType,
)

LOOK = 0.25
"""How often limits are looked at, in seconds: one timer for all of them."""


class _Request:
    __slots__ = ("answer", "command", "deadline", "sent_at", "tracked")

    def __init__(
        self, command: BaseCommand, answer: "asyncio.Future[Response]", sent_at: float, limit: float, tracked: bool
    ) -> None:
        self.command = command
        self.answer = answer
        self.sent_at = sent_at
        self.deadline = sent_at + limit if limit else None
        self.tracked = tracked


class Unanswered:
    """The requests of a connection that wait for their answers.

    Args:
        clock: measures the limits.
        warn_after: after which time an unanswered send is reported in the log, in seconds; 0: never.
    """

    def __init__(self, clock: Clock, warn_after: float) -> None:
        self._clock = clock
        self._warn_after = warn_after
        self._requests: dict[int, _Request] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False

    def __len__(self) -> int:
        return len(self._requests)

    def oldest_age(self) -> float:
        """For how long the oldest request has been waiting, in seconds; 0 if none is."""
        for request in self._requests.values():
            return self._clock.monotonic() - request.sent_at
        return 0.0

    def add(self, command: BaseCommand, limit: float, tracked: bool) -> "asyncio.Future[Response]":
        """Await the answer to a command; limit 0 is none; ``tracked`` if the replay of the state sends it again."""
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._requests[command.command_id] = _Request(command, answer, self._clock.monotonic(), limit, tracked)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK, self._look)
        return answer

    def take(self, number: int) -> "tuple[BaseCommand, asyncio.Future[Response]] | None":
        """The command of a number and the future of its answer, which is expected no more; None if nothing waits."""
        request = self._requests.pop(number, None)
        return None if request is None else (request.command, request.answer)

    def to_resend(self) -> Iterator[BaseCommand]:
        """The commands to send again on a new socket, in order, without those that the replay of the state has."""
        return (request.command for request in self._requests.values() if not request.tracked)

    def fail_all(self, error: QuireError) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _fail(request, error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._clock.monotonic()
        overdue = [number for number, request in self._requests.items() if request.deadline and request.deadline <= now]
        for number in overdue:
            request = self._requests.pop(number)
            waited = now - request.sent_at
            _fail(request, BrokerUnreachable(
                f"the broker did not answer {type(request.command).__name__} within {waited:.1f} s; it may be done",
                waited=waited,
            ))  # fmt: skip
        self._report_blocked()
        self._timer = self._loop.call_later(LOOK, self._look) if self._requests else None

    def _report_blocked(self) -> None:
        oldest = next(iter(self._requests.values()), None)
        is_blocked = (
            oldest is not None and isinstance(oldest.command, Message) and 0 < self._warn_after <= self.oldest_age()
        )
        if is_blocked and not self._warned:
            assert oldest is not None
            assert isinstance(oldest.command, Message)
            logs.event(
                "client.send-blocked",
                f"sends to {oldest.command.destination} are unanswered for {self.oldest_age():.1f} s: the broker holds "
                "them, or is slow",
                logging.WARNING, destination=str(oldest.command.destination), unanswered=len(self._requests),
            )  # fmt: skip
        self._warned = is_blocked


def _fail(request: _Request, error: QuireError) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)


_MESSAGES = (
    ActiveMQMessage, ActiveMQBytesMessage, ActiveMQMapMessage, ActiveMQObjectMessage, ActiveMQStreamMessage,
    ActiveMQTextMessage, ActiveMQBlobMessage,
)  # fmt: skip


@dataclass(slots=True)
class _Transaction:
    begin: TransactionInfo
    messages: list[Message] = field(default_factory=list)
    producers: dict[ProducerId, ProducerInfo] = field(default_factory=dict)
    ending: TransactionInfo | None = None


class ReplayState:
    """The state of a connection at its broker, as the commands that made it.

    Args:
        keeps_messages: also keep messages that were sent without an answer, outside of transactions.
        kept_bytes: how many bytes of them, the newest.
    """

    def __init__(self, keeps_messages: bool = False, kept_bytes: int = 0) -> None:
        self._connection: ConnectionInfo | None = None
        self._temporary: dict[ActiveMQDestination, DestinationInfo] = {}
        self._sessions: dict[SessionId, SessionInfo] = {}
        self._producers: dict[ProducerId, ProducerInfo] = {}
        self._consumers: dict[ConsumerId, ConsumerInfo] = {}
        self._transactions: dict[TransactionId, _Transaction] = {}
        self._kept: dict[int, Message] | None = {} if keeps_messages else None
        self._kept_limit = kept_bytes
        self._kept_size = 0
        self._trackers: dict[type, Callable[[Any], bool]] = {
            ConnectionInfo: self._track_connection, DestinationInfo: self._track_destination,
            SessionInfo: self._track_session, ProducerInfo: self._track_producer, ConsumerInfo: self._track_consumer,
            RemoveInfo: self._track_removal, TransactionInfo: self._track_transaction,
            **dict.fromkeys(_MESSAGES, self._track_message),
        }  # fmt: skip

    def track(self, command: BaseCommand) -> bool:
        """Note a command that is sent; whether ``replay`` has it now, so that its answer comes then too."""
        tracker = self._trackers.get(type(command))
        return tracker is not None and tracker(command)

    def refused(self, command: BaseCommand) -> None:
        if isinstance(command, ConsumerInfo) and command.consumer_id is not None:
            self._consumers.pop(command.consumer_id, None)
        elif isinstance(command, ProducerInfo) and command.producer_id is not None:
            self._producers.pop(command.producer_id, None)
        elif isinstance(command, DestinationInfo) and command.destination is not None:
            self._temporary.pop(command.destination, None)

    def ended(self, command: TransactionInfo) -> None:
        if command.transaction_id is not None:
            self._transactions.pop(command.transaction_id, None)

    def connection(self) -> ConnectionInfo:
        assert self._connection is not None
        return replace(self._connection, failover_reconnect=True, response_required=True)

    def replay(self) -> list[BaseCommand]:
        """The commands that follow on ``connection``, in order; consumers have no prefetch until ``resume``."""
        consumers = [replace(info, prefetch_size=0) for info in self._consumers.values()]
        commands: list[BaseCommand] = [*self._temporary.values(), *self._sessions.values()]
        commands += [*self._producers.values(), *consumers]
        for transaction in self._transactions.values():
            if transaction.ending is None:
                commands += self._of_transaction(transaction)
        return [*commands, *(self._kept or {}).values()]

    def endings_in_doubt(self) -> list[TransactionInfo]:
        """The commits and rollbacks whose answers were lost: their transactions are forgotten, and not replayed."""
        found = {key: item.ending for key, item in self._transactions.items() if item.ending is not None}
        for key in found:
            del self._transactions[key]
        return list(found.values())

    def resume(self) -> list[ConsumerControl]:
        return [
            ConsumerControl(destination=info.destination, consumer_id=info.consumer_id, prefetch=info.prefetch_size)
            for info in self._consumers.values()
            if info.prefetch_size > 0
        ]

    def _of_transaction(self, transaction: _Transaction) -> Iterator[BaseCommand]:
        closed = [info for key, info in transaction.producers.items() if key not in self._producers]
        yield from closed
        yield transaction.begin
        yield from transaction.messages
        for info in closed:
            yield RemoveInfo(object_id=info.producer_id)

    def _track_connection(self, command: ConnectionInfo) -> bool:
        self._connection = command
        return True

    def _track_destination(self, command: DestinationInfo) -> bool:
        if not isinstance(command.destination, ActiveMQTempDestination):
            return False
        if command.operation_type == DestinationOperation.ADD:
            self._temporary[command.destination] = command
            return True
        self._temporary.pop(command.destination, None)
        return False

    def _track_session(self, command: SessionInfo) -> bool:
        assert command.session_id is not None
        self._sessions[command.session_id] = command
        return True

    def _track_producer(self, command: ProducerInfo) -> bool:
        assert command.producer_id is not None
        self._producers[command.producer_id] = command
        return True

    def _track_consumer(self, command: ConsumerInfo) -> bool:
        assert command.consumer_id is not None
        if not command.browser:
            self._consumers[command.consumer_id] = command
        return not command.browser

    def _track_removal(self, command: RemoveInfo) -> bool:
        removed = command.object_id
        if isinstance(removed, ConsumerId):
            self._consumers.pop(removed, None)
        elif isinstance(removed, ProducerId):
            self._producers.pop(removed, None)
        elif isinstance(removed, SessionId):
            self._sessions.pop(removed, None)
        return False

    def _track_transaction(self, command: TransactionInfo) -> bool:
        key = command.transaction_id
        if key is None:
            return False
        if command.type == TransactionType.BEGIN:
            self._transactions[key] = _Transaction(command)
        elif key in self._transactions:
            self._transactions[key].ending = command
        return True

    def _track_message(self, message: Message) -> bool:
        if message.transaction_id is not None:
            transaction = self._transactions.get(message.transaction_id)
            if transaction is None or message.producer_id is None:
                return False
            transaction.messages.append(message)
            if message.producer_id not in transaction.producers:
                info = self._producers.get(message.producer_id)
                transaction.producers[message.producer_id] = info or ProducerInfo(producer_id=message.producer_id)
            return True
        if self._kept is not None and not message.response_required:
            self._keep(self._kept, message)
        return False

    def _keep(self, kept: dict[int, Message], message: Message) -> None:
        kept[message.command_id] = message
        self._kept_size += _size(message)
        while self._kept_size > self._kept_limit and kept:
            self._kept_size -= _size(kept.pop(next(iter(kept))))


def _size(message: Message) -> int:
    return 1024 + len(message.content or b"") + len(message.marshalled_properties or b"")


_ERRORS: dict[str, type[QuireError]] = {
    "InvalidClientIDException": InvalidArgument,
    "InvalidDestinationException": InvalidDestination,
    "DestinationDoesNotExistException": InvalidDestination,
    "InvalidSelectorException": InvalidSelector,
    "JMSSecurityException": AccessRefused,
    "SecurityException": AccessRefused,
    "ResourceAllocationException": ProducerHeld,
    "TransactionRolledBackException": TransactionRolledBack,
    "TransactionInProgressException": IllegalState,
    "XAException": UnknownTransaction,
    "IllegalStateException": IllegalState,
    "BrokerStoppedException": BrokerUnreachable,
    "ConnectionFailedException": BrokerUnreachable,
    "RejectedExecutionException": BrokerBusy,
}

_IN_USE = ("still has an active subscription", "durable consumer is in use")


class RemoteError(QuireError):
    """The broker refused a call, and its exception has no error of its own here; ``data`` has the ``class_name``."""


def error_of(exception: Throwable | None) -> QuireError:
    """The error for an exception that a broker sent.

    Args:
        exception: as the broker sent it.

    Returns:
        An error of the type that Quire names in the text, or that fits the class; its ``data`` has the ``class_name``.
        A class that is not known gives a ``RemoteError``.
    """
    if exception is None:
        return RemoteError("the broker refused the call and gave no reason")
    class_name = exception.class_name or ""
    text = exception.message or class_name
    code, mark, rest = text.partition(": ")
    for known in error_classes():
        # Quire writes its code before the text.
        if mark and known.code == code:
            return known(rest, class_name=class_name)
    simple = class_name.rpartition(".")[2].rpartition("$")[2]
    kind = _ERRORS.get(simple, RemoteError)
    if kind is RemoteError and any(phrase in text.lower() for phrase in _IN_USE):
        kind = DestinationInUse
    return kind(text, class_name=class_name)


NO_FAILOVER = FailoverOptions(max_reconnect_attempts=0, startup_max_reconnect_attempts=1, randomize=False)
"""A URL of one broker: one attempt to connect, and none to connect again."""


class ChannelOwner(Protocol):
    """Who gets what the broker sends of its own accord."""

    def dispatched(self, command: BaseCommand) -> None:
        """A command came that is no answer."""

    def interrupted(self) -> None:
        """The socket is lost; the channel connects again."""

    def resumed(self) -> None:
        """The channel is connected again, and the broker knows the state."""

    def failed(self, error: QuireError) -> None:
        """The connection is lost for good."""


class Channel:
    """The commands of a connection.

    Args:
        url: the brokers.
        owner: gets what the broker sends.
        clock: measures limits.
        random: for the order of brokers.
        tls: for ``ssl://`` addresses.

    Attributes:
        provider: what the broker of the last socket is: ``Quire`` or ``ActiveMQ``.
    """

    def __init__(
        self, url: BrokerUrl, owner: ChannelOwner, clock: Clock, random: Random, tls: ssl.SSLContext | None
    ) -> None:
        self.options = url.failover or NO_FAILOVER
        self._owner = owner
        self._clock = clock
        self._tls = tls
        self._addresses = BrokerAddresses(url, self.options, random)
        self._state = ReplayState(self.options.track_messages, self.options.max_cache_size)
        self._limit = url.options.request_timeout / 1000
        self._connect_limit = url.options.connect_response_timeout / 1000 or self._limit
        self.unanswered = Unanswered(clock, url.options.warn_about_blocked_sends / 1000)
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self.provider = ""
        self._link: Link | None = None
        self._replaying: Link | None = None
        self._ready = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: QuireError | None = None
        self._said: Throwable | None = None
        self._is_connecting = False
        self._backups = BackupLinks(
            self.options.backup_pool_size, lambda owner, address: open_link(owner, address, tls, clock)
        )
        self._filling: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    @property
    def is_ended(self) -> bool:
        return self._error is not None

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    @property
    def address(self) -> BrokerAddress | None:
        return self._addresses.current

    async def open(self, info: ConnectionInfo) -> None:
        """Connect to one of the brokers, and introduce the connection.

        Raises:
            BrokerUnreachable: none of them answers.
            QuireError: the broker refused the connection.
        """
        self._state.track(info)
        link = await self._connected(first=True)
        try:
            await self._introduce(link, info)
        except BaseException as error:
            link.abort()
            self._end(error if isinstance(error, QuireError) else BrokerUnreachable("the connection was not opened"))
            raise
        self._adopt(link)

    def send(self, command: BaseCommand) -> None:
        """Send a command that is not answered. While there is no socket, only what the state keeps is sent later.

        Raises:
            QuireError: the connection is closed or lost.
        """
        self._check()
        self._number(command)
        # What cannot be written raises here, and is neither kept nor sent again.
        if self._link is not None:
            self._link.write(command)
        self._state.track(command)

    def request(self, command: BaseCommand, limit: float | None = None) -> "asyncio.Future[Response]":
        """Send a command that is answered. While there is no socket it waits for the next one.

        Args:
            command: it gets a number, and asks for a response.
            limit: how long the answer may take, in seconds; 0: without a limit; None: as the URL says.

        Returns:
            The answer; its exception is what the broker refused the command with.

        Raises:
            QuireError: the connection is closed or lost.
        """
        self._check()
        self._number(command)
        command.response_required = True
        if self._link is not None:
            self._link.write(command)
        tracked = self._state.track(command)
        return self.unanswered.add(command, self._limit if limit is None else limit, tracked)

    async def ready(self) -> None:
        """Wait until a socket takes more.

        Raises:
            BrokerUnreachable: it took longer than the ``timeout`` of failover, or the ``request_timeout``.
        """
        if self._ready.is_set():
            return
        limit = self.options.timeout / 1000 if self.options.timeout > 0 else self._limit
        try:
            async with asyncio.timeout(limit or None):
                await self._ready.wait()
        except TimeoutError as error:
            raise BrokerUnreachable(f"no broker has taken the command within {limit:g} s") from error
        self._check()

    async def close(self) -> None:
        """Say goodbye and close the socket; what is unanswered fails."""
        link, self._link = self._link, None
        self._end(BrokerUnreachable("the connection is closed"))
        if link is not None:
            link.write(ShutdownInfo())
            link.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(link.closed(), 1)

    def received(self, link: Link, commands: list[BaseCommand]) -> None:
        for command in commands:
            if isinstance(command, Response):
                self._answer(command)
            elif isinstance(command, KeepAliveInfo):
                if command.response_required:
                    link.write(KeepAliveInfo())
            elif isinstance(command, ConnectionControl):
                self._control(command)
            elif isinstance(command, ShutdownInfo):
                self.lost(link, BrokerUnreachable("the broker is stopping"))
                link.abort()
                return
            else:
                self._owner.dispatched(command)
        last = commands[-1]
        self._said = last.exception if isinstance(last, ExceptionResponse | ConnectionErrorCommand) else None

    def lost(self, link: Link, error: QuireError) -> None:
        if link is self._replaying:
            self._replaying = None
            self._fail_introduction(error)
        elif link is self._link:
            self._link = None
            self._interrupted(self._explained(error))

    def writable(self, link: Link, is_writable: bool) -> None:
        if link is self._link:
            self._ready.set() if is_writable else self._ready.clear()

    def _explained(self, error: QuireError) -> QuireError:
        """Why the socket is closed: if the last thing that the broker said was an error, then because of that."""
        if self._said is None or not isinstance(error, BrokerUnreachable):
            return error
        said, self._said = error_of(self._said), None
        explained = BrokerUnreachable(f"{error}, after the error {said.code}: {said}", **error.data)
        explained.__cause__ = said
        return explained

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _number(self, command: BaseCommand) -> None:
        command.command_id = next(self._numbers) & 0x7FFFFFFF

    def _answer(self, response: Response) -> None:
        waiting = self.unanswered.take(response.correlation_id)
        if waiting is None:
            return
        command, answer = waiting
        if isinstance(command, TransactionInfo):
            self._state.ended(command)
        if isinstance(response, ExceptionResponse):
            self._state.refused(command)
            if not answer.done():
                answer.set_exception(error_of(response.exception))
        elif not answer.done():
            answer.set_result(response)

    async def _connected(self, first: bool = False) -> Link:
        """A socket to one of the brokers, tried in rounds with growing delays."""
        if (backup := self._backups.take()) is not None:
            link, self._addresses.current = backup
            link.give_to(self)
            return link
        limit = self.options.limit(first)
        for rounds in itertools.count(1):
            error: QuireError | None = None
            for address in self._addresses.next_round():
                try:
                    link = await open_link(self, address, self._tls, self._clock)
                except BrokerUnreachable as unreachable:
                    error = unreachable
                else:
                    self._addresses.current = address
                    return link
            assert error is not None
            if rounds == limit:
                raise error
            warn = self.options.warn_after_reconnect_attempts
            if warn > 0 and rounds % warn == 0:
                logs.event("client.unreachable", f"no broker answered in {rounds} rounds: {error}", logging.WARNING)
            await asyncio.sleep(self.options.delay_ms(rounds) / 1000)
        raise AssertionError("rounds are endless")

    async def _introduce(self, link: Link, info: ConnectionInfo) -> None:
        _check_open(link)
        if self.options is not NO_FAILOVER:
            link.write(ConnectionControl(fault_tolerant=True))
        self._number(info)
        info.response_required = True
        answer = self.unanswered.add(info, self._connect_limit, tracked=True)
        self._replaying = link
        self._introduced = info.command_id
        link.write(info)
        await answer
        # The socket may be lost in the same turn of the loop in which the answer came.
        _check_open(link)

    def _fail_introduction(self, error: QuireError) -> None:
        waiting = self.unanswered.take(self._introduced)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_exception(error)

    def _adopt(self, link: Link) -> None:
        self._replaying = None
        self._link, self.provider = link, link.provider
        self._ready.set()
        if self.options.backup and self._filling is None:
            pause = self.options.delay_ms(10) / 1000
            self._filling = self._start(self._backups.fill(self._addresses.others, pause))
        if self.options.priority_backup and not self._addresses.is_preferred():
            self._start(self._return_to_preferred())

    def _interrupted(self, error: QuireError) -> None:
        self._ready.clear()
        if self._error is not None:
            return
        if self.options.limit(first=False) == 0:
            self._end(error)
            self._owner.failed(error)
            return
        self._addresses.current = None
        self._owner.interrupted()
        if not self._is_connecting:
            self._is_connecting = True
            self._start(self._reconnect())

    async def _reconnect(self) -> None:
        try:
            while self._link is None:
                link = await self._connected()
                await self._take_over(link)
        except QuireError as error:
            self._end(error)
            self._owner.failed(error)
        finally:
            self._is_connecting = False

    async def _take_over(self, link: Link) -> None:
        """Make a new socket the connection's: the broker learns the state, and what is unanswered goes again."""
        try:
            await self._introduce(link, self._state.connection())
        except QuireError as error:
            link.abort()
            self._replaying = None
            logs.event("client.reconnect-refused", f"the broker refused the connection: {error}", logging.WARNING)
            await asyncio.sleep(self.options.delay_ms(5) / 1000)
            return
        for ending in self._state.endings_in_doubt():
            self._fail_ending(ending)
        for command in [*self._state.replay(), *self.unanswered.to_resend(), *self._state.resume()]:
            if command.command_id == 0:
                self._number(command)
            link.write(command)
        self._adopt(link)
        self._owner.resumed()

    def _fail_ending(self, ending: TransactionInfo) -> None:
        waiting = self.unanswered.take(ending.command_id)
        if waiting is None or waiting[1].done():
            return
        if ending.type == TransactionType.ROLLBACK:
            # The broker rolled it back when it lost the connection.
            waiting[1].set_result(Response(correlation_id=ending.command_id))
        else:
            waiting[1].set_exception(TransactionRolledBack(
                f"the connection was lost before the answer to the commit of {ending.transaction_id}: it is in doubt",
                transaction=str(ending.transaction_id),
            ))  # fmt: skip

    def _control(self, control: ConnectionControl) -> None:
        if self.options is NO_FAILOVER:
            return
        if self.options.update_uris_supported and control.connected_brokers:
            self._addresses.update(control.connected_brokers)
        target = control.reconnect_to if self.options.reconnect_supported else ""
        is_rebalanced = control.rebalance_connection and self.options.rebalance_update_uris
        if target:
            self._addresses.go_to(target)
        if (target or is_rebalanced) and self._link is not None:
            self._leave(BrokerUnreachable("the broker sent the connection to another broker"))

    def _leave(self, reason: QuireError) -> None:
        link, self._link = self._link, None
        assert link is not None
        link.close()
        self._interrupted(reason)

    async def _return_to_preferred(self) -> None:
        while self._link is not None and not self._addresses.is_preferred():
            await asyncio.sleep(self.options.delay_ms(10) / 1000)
            for address in self._addresses.preferred():
                with contextlib.suppress(QuireError):
                    (await open_link(self, address, self._tls, self._clock)).abort()
                    if self._link is not None:
                        self._addresses.go_to(str(address))
                        self._leave(BrokerUnreachable("a preferred broker answers again"))
                    return

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, error: QuireError) -> None:
        self._error = self._error or error
        self._ready.set()
        current = asyncio.current_task() if self._loop.is_running() else None
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._backups.close()
        self.unanswered.fail_all(error)


def _check_open(link: Link) -> None:
    if not link.is_open:
        raise BrokerUnreachable("the connection to the broker was lost as soon as it was made")


class LocalTransaction:
    """One transaction after the other: each begins with the first send or delivery after the one before.

    Args:
        channel: the connection's.
        connection_id: the connection.
        numbers: gives the numbers of the connection's transactions.

    Attributes:
        id: of the open transaction; None if none is open.
        is_lost: the connection was lost with messages delivered in it, so it can only be rolled back.
    """

    def __init__(self, channel: Channel, connection_id: ConnectionId, numbers: Iterator[int]) -> None:
        self._channel = channel
        self._connection_id = connection_id
        self._numbers = numbers
        self.id: LocalTransactionId | None = None
        self.is_lost = False

    def begun(self) -> LocalTransactionId:
        """The open transaction; begins one if none is open."""
        if self.id is None:
            self.id = LocalTransactionId(next(self._numbers), self._connection_id)
            self._channel.send(self._info(TransactionType.BEGIN))
        return self.id

    async def commit(self) -> None:
        """End the open transaction: the broker has done it when this returns."""
        await self._end(TransactionType.COMMIT_ONE_PHASE)

    async def rollback(self) -> None:
        """Undo the open transaction."""
        await self._end(TransactionType.ROLLBACK)

    async def _end(self, how: TransactionType) -> None:
        if self.id is None:
            return
        # Sent to no socket, it would be taken for sent and unanswered when there is one again.
        await self._channel.ready()
        info = self._info(how)
        self.id, self.is_lost = None, False
        await self._channel.request(info)

    def _info(self, how: TransactionType) -> TransactionInfo:
        return TransactionInfo(connection_id=self._connection_id, transaction_id=self.id, type=int(how))
