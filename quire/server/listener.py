"""Sockets that take connections, how many there may be, and a connection until its protocol takes it over."""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from quire.clock import Clock
from quire.errors import AddressInUse, ConnectionTimeout, LimitExceeded, QuireError, TlsRequired, TooManyConnections
from quire.logs import event
from quire.scheduler import Scheduler, Timer
from quire.server.tls import TlsContexts, TlsTransport, certificate_subject
from quire.settings import LimitSettings, split_address

ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

BACKLOG = 1024
"""How many connections may wait to be served."""


def listen(address: str, *, is_shared: bool = False) -> socket.socket:
    """A socket that takes connections; port 0 picks a free one. Processes that share it are dealt connections."""
    listener = bound(address, is_shared=is_shared)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def bound(address: str, *, is_shared: bool = False) -> socket.socket:
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise AddressInUse(f"cannot listen on {address}: {error.strerror}", address=address) from error
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def advertised(address: str) -> str:
    """Where others reach a socket: by the name of the machine, if it is bound to all addresses."""
    host, port = split_address(address)
    return f"{socket.gethostname()}:{port}" if host in ANYWHERE else address


class Accepted:
    """One connection, from when it is accepted until it is gone.

    Attributes:
        door: by which protocol it comes: ``stomp``, ``openwire``, ``http``, ``websocket``.
        certificate: the subject of its certificate, which TLS has verified; empty without one.
        user: the user that it logged in as; empty for none; None before that.
        has_turn: whether it has begun TLS and not logged in yet.
    """

    __slots__ = ("_admission", "certificate", "door", "has_turn", "host", "is_counted", "is_encrypted", "user")

    def __init__(self, admission: "Admission", door: str, host: str) -> None:
        self._admission = admission
        self.door = door
        self.host = host
        self.certificate = ""
        self.is_encrypted = False
        self.user: str | None = None
        self.is_counted = False
        self.has_turn = False

    def logged_in(self, user: str) -> None:
        """The client has shown who it is: it counts to the connections of its user, not to those before their login."""
        self._admission.logged_in(self, user)

    def left(self) -> None:
        self._admission.left(self)


MOST_WAITING = 4000
"""How many connections may wait for their turn."""


class Admission:
    """Counts the connections of all doors, and those that it has refused by the limit; raises ``TooManyConnections``.

    A connection with TLS costs most before its login: handshakes take time and memory, and anyone may begin one. So few
    are before it at once. The next ones wait unread, those of each address by themselves: however many one address has
    that do not log in, connections from others have their turn. One that sends nothing, or no TLS, takes no turn.
    """

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self.open = 0
        self.before_login = 0
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._before_login: Counter[str] = Counter()  # by address
        self.waiting = 0
        self._waiting: dict[str, dict[Accepted, Callable[[], None]]] = {}  # by address: each address has its turn

    def enter(self, accepted: Accepted) -> None:
        limits, host = self.limits, accepted.host
        self._check(self.open, limits.connections, "connections", "connections are open")
        at_most = limits.connections_per_address
        self._check(self._addresses[host], at_most, "connections_per_address", f"connections of {host} are open")
        accepted.is_counted = True
        self.open += 1
        self._addresses[host] += 1

    def agree(self, accepted: Accepted, begin: Callable[[], None]) -> None:
        """A client wants TLS: ``begin`` is called now, or when its turn has come."""
        host = accepted.host
        if host not in self._waiting and self._has_room(host):
            self._begin(accepted, begin)
            return
        self._check(self.waiting, MOST_WAITING, "unauthenticated", "connections wait for others to log in")
        self.waiting += 1
        self._waiting.setdefault(host, {})[accepted] = begin

    def logged_in(self, accepted: Accepted, user: str) -> None:
        if not accepted.is_counted or accepted.user == user:
            return
        if user:
            at_most = self.limits.connections_per_user
            self._check(self._users[user], at_most, "connections_per_user", f"connections of user {user!r} are open")
            self._users[user] += 1
        if accepted.user:
            _take_one(self._users, accepted.user)
        accepted.user = user
        self._end_turn(accepted)

    def left(self, accepted: Accepted) -> None:
        if not accepted.is_counted:
            return
        accepted.is_counted = False
        self.open -= 1
        _take_one(self._addresses, accepted.host)
        if accepted.user:
            _take_one(self._users, accepted.user)
        self._end_turn(accepted)
        if accepted in (waiting := self._waiting.get(accepted.host, {})):
            self._take(accepted.host, waiting, accepted)

    def _check(self, count: int, limit: int, name: str, what: str) -> None:
        if limit and count >= limit:
            self.refused[name] += 1
            raise TooManyConnections(f"{count} {what}: see limits.{name}", limit=limit, setting=name)

    def _has_room(self, host: str) -> bool:
        limits = self.limits
        return (
            self.before_login < limits.unauthenticated and self._before_login[host] < limits.unauthenticated_per_address
        )

    def _begin(self, accepted: Accepted, begin: Callable[[], None]) -> None:
        accepted.has_turn = True
        self.before_login += 1
        self._before_login[accepted.host] += 1
        begin()

    def _end_turn(self, accepted: Accepted) -> None:
        """A connection has logged in or is gone: if it was before its login, the next one has its turn."""
        if not accepted.has_turn:
            return
        accepted.has_turn = False
        self.before_login -= 1
        _take_one(self._before_login, accepted.host)
        for host, waiting in self._waiting.items():  # few: an address without room has its full number before login
            if self._has_room(host):
                following = next(iter(waiting))
                self._begin(following, self._take(host, waiting, following))
                return

    def _take(self, host: str, waiting: dict[Accepted, Callable[[], None]], accepted: Accepted) -> Callable[[], None]:
        """One waits no longer; after it, other addresses have their turn."""
        begin = waiting.pop(accepted)
        self.waiting -= 1
        del self._waiting[host]
        if waiting:
            self._waiting[host] = waiting
        return begin


def _take_one(counter: Counter[str], key: str) -> None:
    """Count one less; what is 0 is not kept, or addresses that never come again would gather."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


TLS_LIMIT = 5.0
"""How many seconds TLS may take to be agreed, from the first byte."""

CLOSE_LIMIT = 5.0
"""How many seconds a client may take to read why it is refused."""

EARLY_LIMIT = 8 * 1024
"""How many bytes a connection may send before its turn."""

CLIENT_HELLO = 0x16
"""The first byte of TLS. None of the protocols begins with it, so one port serves clients with and without TLS."""


class AcceptorContext(NamedTuple):
    admission: Admission
    tls: TlsContexts
    clock: Clock
    scheduler: Scheduler


class ListenerConfig(NamedTuple):
    name: str  # as the audit log has it
    patience: float  # how many seconds a connection may be silent at first
    open: Callable[[Accepted], asyncio.Protocol]  # makes what speaks the protocol
    refusal: Callable[[QuireError], bytes]  # what a connection is told that is refused


class Acceptor(asyncio.Protocol):
    """One connection, until its protocol takes it over."""

    def __init__(self, context: AcceptorContext, config: ListenerConfig) -> None:
        self._context = context
        self._config = config
        self._raw: asyncio.Transport
        self._accepted: Accepted
        self._timer: Timer | None = None
        self._early = b""  # what came before its turn: not empty while it waits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._accepted = Accepted(self._context.admission, self._config.name, "" if peer is None else peer[0])
        if peer is None:  # it was reset before it was accepted
            self._raw.abort()
            return
        self._timer = self._context.scheduler.call_later(self._config.patience, self._ran_out)
        try:
            self._context.admission.enter(self._accepted)
        except QuireError as error:
            self._refuse(error)
            return
        if self._context.tls.current is None:
            self._hand_over(self._raw, b"")

    def data_received(self, data: bytes) -> None:
        """The first bytes have come: those of TLS, or of the protocol."""
        if self._raw.is_closing():
            return
        if self._early:
            self._keep(data)
            return
        context = self._context.tls.current
        if data[0] == CLIENT_HELLO and context is not None:
            self._ask_for_turn(data, context)
        elif self._context.tls.settings.takes_plain(self._accepted.host):
            self._hand_over(self._raw, data)
        else:
            self._refuse(TlsRequired("this broker takes no connections without TLS from this address"))

    def _ask_for_turn(self, data: bytes, context: ssl.SSLContext) -> None:
        """A client wants TLS: what it sends is kept until its turn comes."""
        self._early = data
        try:
            self._context.admission.agree(self._accepted, partial(self._begin_tls, context))
        except QuireError as error:
            self._refuse(error)
            return
        if self._early:
            self._raw.pause_reading()  # uvloop may read once all the same

    def _begin_tls(self, context: ssl.SSLContext) -> None:
        early, self._early = self._early, b""
        self._raw.resume_reading()
        self._end_wait()
        self._timer = self._context.scheduler.call_later(TLS_LIMIT, self._took_too_long)
        inside = TlsTransport(self._raw, context, self._context.clock, self._agreed, self._failed, self._left)
        self._raw.set_protocol(inside)
        inside.data_received(early)

    def _keep(self, data: bytes) -> None:
        self._early += data
        if len(self._early) > EARLY_LIMIT:
            text = f"more than {EARLY_LIMIT} bytes came while many others log in"
            self._refuse(LimitExceeded(text, limit=EARLY_LIMIT))

    def connection_lost(self, exc: Exception | None) -> None:
        self._left()

    def _hand_over(self, transport: asyncio.Transport, data: bytes) -> None:
        self._end_wait()
        protocol = self._config.open(self._accepted)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if data:
            protocol.data_received(data)

    def _agreed(self, transport: TlsTransport) -> None:
        self._accepted.is_encrypted = True
        self._accepted.certificate = certificate_subject(transport.peer_certificate)
        self._hand_over(transport, b"")

    def _failed(self, reason: str) -> None:
        self._context.tls.failures += 1
        text = f"TLS with {self._accepted.host} could not be agreed: {reason}"
        event("tls.failed", text, logging.DEBUG, address=self._accepted.host)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ran_out(self) -> None:
        seconds = self._config.patience
        what = "many others log in: no turn came" if self._early else "nothing came"
        self._refuse(ConnectionTimeout(f"{what} within {seconds:g} s", seconds=seconds))

    def _took_too_long(self) -> None:
        self._failed("it took too long")
        self._raw.abort()

    def _refuse(self, error: QuireError) -> None:
        self._end_wait()
        self._raw.write(self._config.refusal(error))
        self._raw.close()
        self._context.scheduler.call_later(CLOSE_LIMIT, self._raw.abort)

    def _left(self) -> None:
        self._end_wait()
        self._accepted.left()
