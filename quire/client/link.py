"""One socket to a broker: frames in and out, the agreement on their format, and heart-beats.

``BackupLinks`` are sockets to other brokers that are open already when the present one is lost.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, cast

from quire.client.options import BrokerAddress
from quire.client.remote import QUESTION, client_context, protocol_of
from quire.clock import Clock
from quire.errors import (
    BrokerUnreachable,
    CertificateNotTrusted,
    ConnectionTimeout,
    ProtocolViolation,
    QuireError,
    WrongProtocol,
)
from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import BaseCommand, KeepAliveInfo, WireFormatInfo
from quire.protocols.openwire.negotiation import WireFormat, format_of, info_of, properties_of

SILENT = 1.0
"""After how many seconds of silence a port is asked what it speaks."""

PROBE_LIMIT = 2.0
"""How long that may take, in seconds."""

CHECKS = 3
"""How often a side checks within the time of inactivity that it has sent and received something."""


class LinkOwner(Protocol):
    """Who gets what a link receives."""

    def received(self, link: "Link", commands: list[BaseCommand]) -> None:
        """Commands came."""

    def lost(self, link: "Link", error: QuireError) -> None:
        """The socket is closed; this is called once, and not after ``close``."""

    def writable(self, link: "Link", is_writable: bool) -> None:
        """The socket takes more again, or should not be given more."""


class Link(asyncio.Protocol):
    """A socket to a broker; ``open_link`` makes one.

    Args:
        owner: gets what is received.
        offered: what this side can do.
        clock: for heart-beats.
        place: what it is connected to, for the texts of errors.

    Attributes:
        provider: what the broker is, as it says: ``Quire`` or ``ActiveMQ``.
    """

    def __init__(self, owner: LinkOwner, offered: WireFormat, clock: Clock, place: str) -> None:
        self._owner = owner
        self._offered = offered
        self._clock = clock
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(offered.max_frame_size)
        self._encoder = Encoder()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._agreed: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._is_owned = False
        self._sent_any = False
        self._silent_checks = 0
        self._inactivity = 0
        self.provider = ""

    async def agreed(self) -> None:
        """Wait until the format is agreed. From then on the owner is told what comes."""
        await asyncio.shield(self._agreed)

    @property
    def is_open(self) -> bool:
        return self._is_owned

    def give_to(self, owner: LinkOwner) -> None:
        self._owner = owner

    def write(self, command: BaseCommand) -> None:
        """Send a command; all that are sent in one turn of the loop go in one write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(self._encoder.encode(command))

    def close(self) -> None:
        self._is_owned = False
        self._stop_beats()
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        self._is_owned = False
        self._agreed.cancel()
        self._stop_beats()
        if self._transport is not None:
            self._transport.abort()

    async def closed(self) -> None:
        """Wait until the socket is closed."""
        await asyncio.shield(self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._out.append(self._encoder.encode(info_of(self._offered, provider_name="Quire")))
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._silent_checks = 0
        try:
            self._decoder.receive(data)
            while commands := self._decoder.next_commands():
                info = commands[-1]
                if isinstance(info, WireFormatInfo):
                    self._agree(info)
                elif self._is_owned:
                    self._owner.received(self, cast(list[BaseCommand], commands))
        except QuireError as error:
            spoken = "" if self._agreed.done() else protocol_of(data)
            self._fail(wrong_protocol(self._place, spoken) if spoken else error)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the broker closed it" if exc is None else str(exc)
        self._fail(BrokerUnreachable(f"the connection to the broker is lost: {reason}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        if self._is_owned:
            self._owner.writable(self, False)

    def resume_writing(self) -> None:
        if self._is_owned:
            self._owner.writable(self, True)

    def _agree(self, info: WireFormatInfo) -> None:
        if self._agreed.done():
            raise ProtocolViolation("the broker sent its WireFormatInfo twice")
        agreed = WireFormat.agreed(self._offered, format_of(info))
        self._decoder.use(agreed)
        self._encoder.use(agreed)
        self.provider = str(properties_of(info).get("ProviderName", ""))
        self._is_owned = True
        self._agreed.set_result(None)
        self._inactivity = agreed.inactivity_ms
        if self._inactivity > 0:
            first = max(agreed.initial_delay_ms, 1) / 1000
            self._beat = self._loop.call_later(min(first, self._interval()), self._check)

    def _interval(self) -> float:
        return self._inactivity / CHECKS / 1000

    def _check(self) -> None:
        self._beat = self._loop.call_later(self._interval(), self._check)
        # A loop that was busy has not read what came: only checks count, not the time between them.
        self._silent_checks += 1
        if self._silent_checks > CHECKS:
            self._fail(ConnectionTimeout(f"the broker was silent for more than {self._inactivity} ms"))
        elif not self._sent_any:
            self.write(KeepAliveInfo())
        self._sent_any = False

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
            self._sent_any = True
        self._out.clear()

    def _fail(self, error: QuireError) -> None:
        self._stop_beats()
        if not self._agreed.done():
            self._agreed.set_exception(error)
        was_owned, self._is_owned = self._is_owned, False
        if self._transport is not None:
            self._transport.abort()
        if was_owned:
            self._owner.lost(self, error)

    def _stop_beats(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None


async def open_link(owner: LinkOwner, address: BrokerAddress, tls: ssl.SSLContext | None, clock: Clock) -> Link:
    """Connect to a broker and agree on the format; without ``tls`` as the environment says (``quire.client.remote``).

    Raises:
        BrokerUnreachable: no broker answers there in time.
        WrongProtocol: the port speaks another protocol, or TLS where it should not, or not where it should.
        CertificateNotTrusted: the broker's certificate is from an unknown authority, or for another name.
        QuireError: what answers is no broker, or they cannot agree.
    """
    loop = asyncio.get_running_loop()
    context = (tls or client_context()) if address.tls else None
    offered, place = _offered(address), f"port {address.port} of {address.host}"
    limit = address.options.connection_timeout / 1000
    link: Link | None = None
    try:
        async with asyncio.timeout(limit or None):
            _, link = await loop.create_connection(
                lambda: Link(owner, offered, clock, place), address.host, address.port, ssl=context
            )
            await _agreed(link, address, context, place)
    except (OSError, TimeoutError) as error:
        if link is not None:
            link.abort()
        raise _no_answer(address, place, error, limit) from error
    except BaseException:
        if link is not None:
            link.abort()
        raise
    return link


async def _agreed(link: Link, address: BrokerAddress, context: ssl.SSLContext | None, place: str) -> None:
    """Wait until the format is agreed. A port that is silent is asked on another socket what it speaks."""
    try:
        async with asyncio.timeout(SILENT):
            await link.agreed()
    except TimeoutError:
        spoken = await _spoken_protocol(address, context)
        if spoken and spoken != "OpenWire":
            raise wrong_protocol(place, spoken) from None
        await link.agreed()


async def _spoken_protocol(address: BrokerAddress, context: ssl.SSLContext | None) -> str:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_LIMIT):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
            try:
                writer.write(QUESTION)
                return protocol_of(await reader.read(512))
            finally:
                writer.transport.abort()
    return ""


def wrong_protocol(place: str, spoken: str) -> WrongProtocol:
    """The error for a port of another protocol, or with TLS where none was expected."""
    found = f"{spoken}, not OpenWire"
    if spoken == "HTTPS":
        found = "TLS, not OpenWire: write ssl:// if it is the port of OpenWire"
    return WrongProtocol(f"the {place} speaks {found}", protocol=spoken)


def _no_answer(address: BrokerAddress, place: str, error: Exception, limit: float) -> BrokerUnreachable:
    data = {"host": address.host, "port": address.port}
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the certificate of {address} is not trusted: {error.verify_message}"
        return CertificateNotTrusted(text, **data)
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return WrongProtocol(f"the {place} does not speak TLS: write tcp:// if it is the port of OpenWire", **data)
    reason = f"no answer within {limit:g} s" if isinstance(error, TimeoutError) and not error.args else error
    return BrokerUnreachable(f"no broker answers at {address}: {reason}", **data)


def _offered(address: BrokerAddress) -> WireFormat:
    own = address.options.wire_format
    return WireFormat(
        version=own.version, stack_traces=own.stack_trace_enabled, max_frame_size=own.max_frame_size,
        tcp_no_delay=own.tcp_no_delay_enabled,
        inactivity_ms=own.max_inactivity_duration, initial_delay_ms=own.max_inactivity_duration_inital_delay,
    )  # fmt: skip


class BackupLinks:
    """Keeps ``size`` links open; it owns them until one is taken."""

    def __init__(self, size: int, open_link: "Callable[[BackupLinks, BrokerAddress], Awaitable[Link]]") -> None:
        self._size = size
        self._open_link = open_link
        self._links: dict[Link, BrokerAddress] = {}

    async def fill(self, addresses: Callable[[], Iterable[BrokerAddress]], pause: float) -> None:
        """Open links to brokers that have none, again and again, ``pause`` seconds apart, until it is cancelled."""
        while True:
            used = {str(address) for address in self._links.values()}
            for address in addresses():
                if len(self._links) < self._size and str(address) not in used:
                    try:
                        self._links[await self._open_link(self, address)] = address
                    except BrokerUnreachable:
                        # It is tried again at the next look.
                        continue
            await asyncio.sleep(pause)

    def take(self) -> tuple[Link, BrokerAddress] | None:
        return self._links.popitem() if self._links else None

    def close(self) -> None:
        links, self._links = self._links, {}
        for link in links:
            link.abort()

    def received(self, link: Link, commands: list[BaseCommand]) -> None:
        """Of the link: the broker introduces itself, and asks for signs of life."""
        for command in commands:
            if isinstance(command, KeepAliveInfo) and command.response_required:
                link.write(KeepAliveInfo())

    def lost(self, link: Link, error: QuireError) -> None:
        self._links.pop(link, None)

    def writable(self, link: Link, is_writable: bool) -> None:
        """Of the link: nothing is sent on it that could fill it."""
