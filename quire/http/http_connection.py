"""A connection of an HTTP client: uvicorn's, with limits of time and number, but none for the length of an answer."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from quire.errors import ProtocolViolation, QuireError, RequestTimeout, TooManyConnections
from quire.http.answers import CERTIFICATE, error_answer
from quire.scheduler import Scheduler, Timer
from quire.server.listener import Accepted, Acceptor, AcceptorContext, ListenerConfig
from quire.settings import HttpSettings

LEAST_RATE = 1000  # how many bytes a second of a body have to come, once its time is up
WRITE_LIMIT = 60.0  # how many seconds a client may read nothing of its answer
CLOSE_LIMIT = 5.0  # how many seconds a client may take to read why its connection ends

WRITE_HIGH_WATER = 16 * 1024
"""With more than this waiting in a connection, an answer goes on when the client has read it."""


WEBSOCKET_PATH = b"/stomp"

Upgrade = Callable[[h11.Request, asyncio.Transport, Accepted], asyncio.Protocol]
"""Takes over a connection that becomes a WebSocket. It raises what refuses the request."""


class Stage(Enum):
    NOTHING = "nothing that has a limit: an answer, or the next request, whose limit is uvicorn's"
    HEAD = "the head of a request"
    BODY = "its body"


class HttpConnection(H11Protocol):
    """One connection; ``accepted`` is how it is counted, ``upgrade`` takes over one that becomes a WebSocket."""

    def __init__(
        self, settings: HttpSettings, scheduler: Scheduler, accepted: Accepted | None = None,
        upgrade: Upgrade | None = None, **arguments: Any,
    ) -> None:  # fmt: skip
        super().__init__(**arguments)
        self._settings = settings
        self._accepted = accepted
        self._upgrade = upgrade
        self._scheduler = scheduler
        self._stage = Stage.NOTHING
        self._timer: Timer | None = None
        self._write_timer: Timer | None = None
        self._received = 0
        self._is_handed_over = False

    # asyncio calls these.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._accepted is not None and self._accepted.certificate:
            self.app_state = {**self.app_state, CERTIFICATE: self._accepted.certificate}
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        limit = self._settings.max_connections
        if len(self.connections) > limit:
            self._refuse(TooManyConnections(f"the limit of {limit} HTTP connections is reached", limit=limit))
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._received += len(data)
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self._scheduler.call_later(WRITE_LIMIT, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._enter(Stage.NOTHING)
        self._cancel_write_timer()
        if self._accepted is not None:
            self._accepted.left()

    # uvicorn calls these.

    def _should_upgrade_to_ws(self) -> bool:
        return self._upgrade is not None and self.scope["raw_path"] == WEBSOCKET_PATH

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        assert self._upgrade is not None
        assert self._accepted is not None
        try:
            protocol = self._upgrade(event, self.transport, self._accepted)
        except QuireError as error:
            self._refuse(error)
            return
        self.connections.discard(self)
        self._is_handed_over = True  # no limit of a request holds for it any more
        self._enter(Stage.NOTHING)
        self._cancel_write_timer()
        self.transport.set_protocol(protocol)
        if rest := self.conn.trailing_data[0]:
            protocol.data_received(rest)

    def _unsupported_upgrade_warning(self) -> None:
        """A request for another protocol is none that is worth a warning."""

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ProtocolViolation(msg))

    # Limits.

    @property
    def _has_begun(self) -> bool:
        return bool(self.cycle)

    def _watch(self) -> None:
        state = self.conn.their_state
        if self._is_handed_over or self.transport.is_closing():
            self._enter(Stage.NOTHING)
        elif state is h11.SEND_BODY:
            self._enter(Stage.BODY)
        elif state is h11.IDLE and (not self._has_begun or self.conn.trailing_data[0]):
            self._enter(Stage.HEAD)
        else:
            self._enter(Stage.NOTHING)

    def _enter(self, stage: Stage) -> None:
        if stage is not self._stage:
            self._stage = stage
            self._start()

    def _start(self) -> None:
        self._received = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._stage is not Stage.NOTHING:
            self._timer = self._scheduler.call_later(self._limit, self._time_is_up)

    @property
    def _limit(self) -> float:
        settings = self._settings
        return settings.header_timeout if self._stage is Stage.HEAD else settings.body_timeout

    def _time_is_up(self) -> None:
        """A head has to be there; a body has to come at the least rate."""
        seconds = self._limit
        if self._stage is Stage.BODY and self._received >= LEAST_RATE * seconds:
            self._start()
            return
        self._refuse(RequestTimeout(f"{self._stage.value} did not come within {seconds:g} s", seconds=seconds))

    def _refuse(self, error: QuireError) -> None:
        if self._has_begun and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_written(self.conn, error))
        self.transport.close()
        self._scheduler.call_later(CLOSE_LIMIT, self.transport.abort)
        self._enter(Stage.NOTHING)

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def refusal(error: QuireError) -> bytes:
    return _written(h11.Connection(h11.SERVER), error)


def _written(connection: h11.Connection, error: QuireError) -> bytes:
    answer = error_answer(error)
    status = answer.status_code
    headers = [*answer.raw_headers, (b"connection", b"close")]
    response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
    events = (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage())
    return b"".join([connection.send(event) or b"" for event in events])


def acceptor_of(
    acceptors: AcceptorContext, settings: HttpSettings, upgrade: Upgrade | None = None, **arguments: Any
) -> Acceptor:
    """What takes a new connection of a server of uvicorn, which gives the ``arguments``."""

    def open(accepted: Accepted) -> HttpConnection:
        accepted.logged_in("")  # from here on requests have their own limits, and log in one by one
        return HttpConnection(settings, acceptors.scheduler, accepted, upgrade, **arguments)

    return Acceptor(acceptors, ListenerConfig("http", settings.header_timeout, open, refusal))
