"""A connection that was just accepted: it is handed over, after TLS if the client wants TLS and has its turn."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from quire.clock import Clock
from quire.errors import ConnectionTimeout, LimitExceeded, QuireError, TlsRequired
from quire.logs import event
from quire.scheduler import Scheduler, Timer
from quire.server.entrance.admission import Admission
from quire.server.entrance.certificate_subject import certificate_subject
from quire.server.entrance.tls_contexts import TlsContexts
from quire.server.entrance.tls_transport import TlsTransport
from quire.server.entrance.visitor import Visitor

TLS_LIMIT = 5.0
"""How many seconds TLS may take to be agreed, from the first byte."""

CLOSE_LIMIT = 5.0
"""How many seconds a client may take to read why it is refused."""

EARLY_LIMIT = 8 * 1024
"""How many bytes a connection may send before its turn."""

CLIENT_HELLO = 0x16
"""The first byte of TLS. None of the protocols begins with it, so one port serves clients with and without TLS."""


class Lobby(NamedTuple):
    """What the entrances of all doors share."""

    admission: Admission
    tls: TlsContexts
    clock: Clock
    scheduler: Scheduler


class Door(NamedTuple):
    """A protocol, as its entrance sees it."""

    name: str  # as the audit log has it
    patience: float  # how many seconds a connection may be silent at first
    open: Callable[[Visitor], asyncio.Protocol]  # makes what speaks the protocol
    refusal: Callable[[QuireError], bytes]  # what a connection is told that is refused


class Entrance(asyncio.Protocol):
    """One connection, until its protocol takes it over."""

    def __init__(self, lobby: Lobby, door: Door) -> None:
        self._lobby = lobby
        self._door = door
        self._raw: asyncio.Transport
        self._visitor: Visitor
        self._timer: Timer | None = None
        self._early = b""  # what came before its turn: not empty while it waits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._visitor = Visitor(self._lobby.admission, self._door.name, "" if peer is None else peer[0])
        if peer is None:  # it was reset before it was accepted
            self._raw.abort()
            return
        self._timer = self._lobby.scheduler.call_later(self._door.patience, self._ran_out)
        try:
            self._lobby.admission.enter(self._visitor)
        except QuireError as error:
            self._refuse(error)
            return
        if self._lobby.tls.current is None:
            self._hand_over(b"")

    def data_received(self, data: bytes) -> None:
        """The first bytes have come: those of TLS, or of the protocol."""
        if self._raw.is_closing():
            return
        if self._early:
            self._keep(data)
            return
        context = self._lobby.tls.current
        if data[0] == CLIENT_HELLO and context is not None:
            self._ask_for_turn(data, context)
        elif self._lobby.tls.settings.takes_plain(self._visitor.host):
            self._hand_over(data)
        else:
            self._refuse(TlsRequired("this broker takes no connections without TLS from this address"))

    def _ask_for_turn(self, data: bytes, context: ssl.SSLContext) -> None:
        """A client wants TLS: what it sends is kept until its turn comes."""
        self._early = data
        try:
            self._lobby.admission.agree(self._visitor, partial(self._begin_tls, context))
        except QuireError as error:
            self._refuse(error)
            return
        if self._early:
            self._raw.pause_reading()  # uvloop may read once all the same

    def _begin_tls(self, context: ssl.SSLContext) -> None:
        """Its turn has come."""
        early, self._early = self._early, b""
        self._raw.resume_reading()
        self._end_wait()
        self._timer = self._lobby.scheduler.call_later(TLS_LIMIT, self._took_too_long)
        inside = TlsTransport(self._raw, context, self._lobby.clock, self._agreed, self._failed, self._left)
        self._raw.set_protocol(inside)
        inside.data_received(early)

    def _keep(self, data: bytes) -> None:
        """Bytes have come before its turn."""
        self._early += data
        if len(self._early) > EARLY_LIMIT:
            text = f"more than {EARLY_LIMIT} bytes came while many others log in"
            self._refuse(LimitExceeded(text, limit=EARLY_LIMIT))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone before its protocol began."""
        self._left()

    def _hand_over(self, data: bytes) -> None:
        self._end_wait()
        protocol = self._door.open(self._visitor)
        self._raw.set_protocol(protocol)
        protocol.connection_made(self._raw)
        if data:
            protocol.data_received(data)

    def _agreed(self, transport: TlsTransport) -> None:
        """TLS is agreed."""
        self._end_wait()
        self._visitor.is_encrypted = True
        self._visitor.certificate = certificate_subject(transport.peer_certificate)
        protocol = self._door.open(self._visitor)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def _failed(self, reason: str) -> None:
        """TLS could not be agreed."""
        self._lobby.tls.failures += 1
        text = f"TLS with {self._visitor.host} could not be agreed: {reason}"
        event("tls.failed", text, logging.DEBUG, address=self._visitor.host)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ran_out(self) -> None:
        seconds = self._door.patience
        what = "many others log in: no turn came" if self._early else "nothing came"
        self._refuse(ConnectionTimeout(f"{what} within {seconds:g} s", seconds=seconds))

    def _took_too_long(self) -> None:
        self._failed("it took too long")
        self._raw.abort()

    def _refuse(self, error: QuireError) -> None:
        self._end_wait()
        self._raw.write(self._door.refusal(error))
        self._raw.close()
        self._lobby.scheduler.call_later(CLOSE_LIMIT, self._raw.abort)

    def _left(self) -> None:
        self._end_wait()
        self._visitor.left()
