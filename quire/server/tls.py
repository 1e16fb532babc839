"""TLS: the certificates of the broker, and a transport that encrypts between a socket's transport and a protocol."""

import asyncio
import contextlib
import logging
import ssl
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from quire.clock import Clock
from quire.errors import InvalidSettings
from quire.logs import event
from quire.settings import TlsSettings

_ASKED = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsContexts:
    """What new connections are encrypted with; None while there is no certificate. Open ones keep what they began with.

    ``ends_at`` is when the certificate ends, in seconds since the epoch.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.failures = 0
        self.current, self.ends_at, self.fingerprint = _read_all(settings)

    def reload(self, settings: TlsSettings) -> None:
        """Read the files again; files that cannot be used change nothing."""
        try:
            self.current, self.ends_at, self.fingerprint = _read_all(settings)
        except InvalidSettings as error:
            event("tls.refused", f"the certificates stay as they are: {error}", logging.ERROR, code=error.code)
            return
        self.settings = settings
        if self.current is not None:
            event("tls.reloaded", f"the certificate {settings.certificate} was read again", path=settings.certificate)


def load_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """Read a certificate, its key and the authorities of clients; ``InvalidSettings`` if a file cannot be used."""
    if not settings.certificate:
        _check(settings)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # a client that connects anew agrees anew: a certificate that has ended is seen
    _read("certificate", settings.certificate, lambda: _load_pair(context, settings))
    if settings.client_certificates != "none":
        if not settings.client_ca:
            text = "tls.client_certificates needs tls.client_ca: the authorities whose client certificates are accepted"
            raise InvalidSettings(text, key="tls.client_ca")
        _read("client_ca", settings.client_ca, lambda: context.load_verify_locations(settings.client_ca))
        context.verify_mode = _ASKED[settings.client_certificates]
    return context


def _read_all(settings: TlsSettings) -> tuple[ssl.SSLContext | None, float | None, bytes]:
    """A certificate, when it ends, and its SHA-256."""
    context = load_context(settings)
    if context is None:
        return None, None, b""
    # What this imports takes 8 MB of memory.
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import load_pem_x509_certificate

    certificate = load_pem_x509_certificate(Path(settings.certificate).read_bytes())
    digest = sha256(certificate.public_bytes(Encoding.DER)).digest()
    return context, certificate.not_valid_after_utc.timestamp(), digest


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    # A key with a password would have OpenSSL ask for it at the terminal.
    context.load_cert_chain(settings.certificate, settings.key or None, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one, readable to the broker alone")


def _check(settings: TlsSettings) -> None:
    if settings.key or settings.client_ca or settings.client_certificates != "none":
        text = "tls.certificate is not set, and other settings of [tls] are: there is no TLS without a certificate"
        raise InvalidSettings(text, key="tls.certificate")


def _read(name: str, path: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidSettings(f"tls.{name}: {path} cannot be used: {reason}", key=f"tls.{name}", path=path) from error


_SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "localityName": "L", "stateOrProvinceName": "ST", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
_SPECIAL = frozenset(',+"\\<>;=')


def certificate_subject(certificate: Mapping[str, Any] | None) -> str:
    """The subject as RFC 4514 writes it, the most particular first: ``CN=alice,O=Example``; empty without one."""
    if not certificate:
        return ""
    parts = ["+".join([f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in part])
             for part in certificate.get("subject", ())]  # fmt: skip
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    """A value in which nothing can be taken for the beginning of another part."""
    text = "".join([_escaped_character(char) for char in value])
    return f"\\{text}" if text[:1] in (" ", "#") else text


def _escaped_character(char: str) -> str:
    if char in _SPECIAL:
        return f"\\{char}"
    return char if char.isprintable() else "".join([f"\\{byte:02X}" for byte in char.encode()])


BUDGET = 0.01
"""How long the input of one connection is taken apart in one turn, in seconds: its parts may be tiny."""


class LayeredTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of one transport, and the transport of the protocol inside. What comes is taken apart in slices."""

    def __init__(self, raw: asyncio.Transport, clock: Clock, slice: int) -> None:
        super().__init__()
        self._raw = raw
        self._clock = clock
        self._slice = slice
        self._protocol: asyncio.Protocol | None = None
        self._pieces: deque[memoryview] = deque()  # came, and is not taken apart yet
        self._not_reading = False
        self._is_put_off = False
        self._is_closing = False
        self._has_said_goodbye = False  # the client: it sends no more

    # The transport below calls these.

    def data_received(self, data: bytes) -> None:
        if self._is_closing and self._protocol is None:
            return
        view = memoryview(data)
        self._pieces.extend([view[start : start + self._slice] for start in range(0, len(view), self._slice)])
        if not self._is_put_off:
            self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._pieces.clear()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    # What came.

    @abstractmethod
    def _take_piece(self, piece: memoryview, content: list[bytes]) -> bool:
        """Take some bytes apart, and add what is in them; false if the connection ends."""

    def _take(self) -> None:
        """Take apart what has come, until the time of this turn is over, and hand its content on."""
        end = self._clock.monotonic() + BUDGET
        content: list[bytes] = []
        while self._pieces and not self._not_reading and self._take_piece(self._pieces.popleft(), content):
            if self._clock.monotonic() > end:
                self._put_off()
                break
        if content and self._protocol is not None:
            self._protocol.data_received(content[0] if len(content) == 1 else b"".join(content))
        if self._has_said_goodbye:
            self.close()

    def _put_off(self) -> None:
        """Go on in the next turn: others are to have their turn too."""
        if self._pieces:
            if not self._raw.is_closing():
                self._raw.pause_reading()
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        self._is_put_off = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_put_off = False
        if self._raw.is_closing() or self._not_reading:
            return
        self._take()
        self._read_on()

    def _read_on(self) -> None:
        """Read, unless there is a reason not to."""
        if not (self._is_put_off or self._not_reading or self._raw.is_closing()):
            self._raw.resume_reading()

    # The protocol inside calls these.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        if not self._not_reading:
            self._not_reading = True
            if not self._is_put_off and not self._raw.is_closing():
                self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._not_reading:
            self._not_reading = False
            if not self._is_put_off:
                self._go_on_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def abort(self) -> None:
        self._is_closing = True
        self._raw.abort()


SLICE = 32 * 1024
"""How many bytes are taken apart between two looks at the clock: records may be tiny, or change keys."""

HANDSHAKE_LIMIT = 64 * 1024
"""How many bytes a client may send before TLS is agreed: its certificates are among them."""

MAX_EMPTY_BYTES = 64 * 1024
"""How many bytes may come in a row without any content: records have at most 16 KiB, a change of keys a few bytes."""

PIECE = 64 * 1024
"""How many bytes are encrypted at once."""

READ = 16 * 1024
"""The most content that a record has."""

WRITE_HIGH_WATER = 512 * 1024
"""With more than this waiting in the socket's transport, the rest waits as it was given, and the protocol is told."""


class TlsTransport(LayeredTransport):
    """One encrypted connection: ``agreed`` connects the protocol inside; ``ended`` is called if there was none.

    asyncio's own TLS gives each connection a buffer of 256 KiB when it begins, and reads on whatever comes. Here a
    connection has what OpenSSL needs, and everything that a client may send has a limit.
    """

    def __init__(
        self, raw: asyncio.Transport, context: ssl.SSLContext, clock: Clock,
        agreed: "Callable[[TlsTransport], None]", failed: Callable[[str], None], ended: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(raw, clock, SLICE)
        self._agreed = agreed
        self._failed = failed
        self._ended = ended
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._context = context
        self._plain: deque[memoryview] = deque()  # is to be sent, and is not encrypted yet
        self._is_raw_writable = True
        self._received = 0
        self._empty_bytes = 0
        raw.set_write_buffer_limits(high=WRITE_HIGH_WATER)

    # The socket's transport calls these.

    def pause_writing(self) -> None:
        self._is_raw_writable = False
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_raw_writable = True
        self._encrypt()
        if self._is_raw_writable and self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._plain.clear()
        super().connection_lost(exc)
        if self._protocol is None:
            self._ended()

    # What came.

    def _take_piece(self, piece: memoryview, content: list[bytes]) -> bool:
        self._incoming.write(piece)
        try:
            if self._protocol is None and not self._shake_hands(len(piece)):
                return not self._is_closing
            had = len(content)
            self._read(content)
        except ssl.SSLError as error:
            self._fail(error.reason or str(error))
            return False
        self._empty_bytes = 0 if len(content) > had else self._empty_bytes + len(piece)
        if self._empty_bytes > MAX_EMPTY_BYTES:
            self._fail("no content came")
        return not self._is_closing and not self._has_said_goodbye

    def _shake_hands(self, size: int) -> bool:
        """Agree on TLS; false if more has to come for that."""
        self._received += size
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            if self._received > HANDSHAKE_LIMIT:
                self._fail("too much came before TLS was agreed")
            return False
        self._send_outgoing()
        self._agreed(self)
        return True

    def _read(self, content: list[bytes]) -> None:
        try:
            while piece := self._tls.read(READ):
                content.append(piece)
            self._has_said_goodbye = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._has_said_goodbye = True
        self._send_outgoing()

    def _fail(self, reason: str) -> None:
        self._send_outgoing()  # the alert that says why
        self._pieces.clear()
        if self._protocol is None:
            self._failed(reason)
        self._is_closing = True
        self._raw.close()

    # The protocol inside calls these.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection; ``sslcontext`` tells uvicorn that it is encrypted."""
        return self._context if name == "sslcontext" else super().get_extra_info(name, default)

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        return self._tls.getpeercert() or None

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if data and not self.is_closing():
            self._plain.append(memoryview(data))
            self._encrypt()

    def close(self) -> None:
        """Close when what was written is sent, and say so to the client."""
        if not self._is_closing:
            self._is_closing = True
            self._encrypt()

    # What goes.

    def _encrypt(self) -> None:
        """Encrypt and send what waits, as far as the socket's transport takes it."""
        while self._plain and self._is_raw_writable:
            view = self._plain.popleft()
            if len(view) > PIECE:
                self._plain.appendleft(view[PIECE:])
                view = view[:PIECE]
            try:
                while view:
                    view = view[self._tls.write(view) :]
            except ssl.SSLError as error:  # the client has ended TLS
                self._fail(error.reason or str(error))
                return
            self._send_outgoing()
        if self._is_closing and not self._plain and not self._raw.is_closing():
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # it does not wait for the client's own goodbye
            self._tls.unwrap()
        self._send_outgoing()
        self._raw.close()

    def _send_outgoing(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())
