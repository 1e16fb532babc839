"""The commands of one connection and their answers, over one socket after the other."""

import asyncio
import contextlib
import itertools
import logging
import ssl
from collections.abc import Coroutine
from random import Random
from typing import Protocol

from quire import logs
from quire.client.backup_links import BackupLinks
from quire.client.broker_addresses import BrokerAddresses
from quire.client.broker_url import BrokerAddress, BrokerUrl
from quire.client.failover_options import FailoverOptions
from quire.client.link import Link, open_link
from quire.client.remote_exception import error_of
from quire.client.replay_state import ReplayState
from quire.client.unanswered import Unanswered
from quire.clock import Clock
from quire.errors import BrokerUnreachable, QuireError, TransactionRolledBack
from quire.protocols.openwire.commands import (
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionInfo,
    ExceptionResponse,
    KeepAliveInfo,
    Response,
    ShutdownInfo,
    TransactionInfo,
    TransactionType,
)
from quire.protocols.openwire.structures import BaseCommand
from quire.protocols.openwire.throwable import Throwable

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
        """Whether there is a socket at present."""
        return self._link is not None

    @property
    def is_ended(self) -> bool:
        """Whether it was closed, or is lost for good."""
        return self._error is not None

    @property
    def is_ready(self) -> bool:
        """Whether a socket takes more at present."""
        return self._ready.is_set()

    @property
    def address(self) -> BrokerAddress | None:
        """The broker of the present socket."""
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
        """Of the link: commands came."""
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
        """Of the link: the socket is closed."""
        if link is self._replaying:
            self._replaying = None
            self._fail_introduction(error)
        elif link is self._link:
            self._link = None
            self._interrupted(self._explained(error))

    def writable(self, link: Link, is_writable: bool) -> None:
        """Of the link: the socket takes more, or not."""
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
