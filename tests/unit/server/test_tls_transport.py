"""TLS between a socket's transport and a protocol, without sockets: what comes, what goes, and what is too much."""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quire.cli.tls import make_authority, make_client, make_server, write_pair
from quire.clock import ManualClock, SystemClock
from quire.server import tls as tls_module
from quire.server.tls import TlsTransport, certificate_subject, load_context
from quire.settings import TlsSettings

NOW = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    authority = make_authority(NOW)
    write_pair(authority, found / "ca.pem", found / "ca.key")
    write_pair(make_server(authority, ["localhost"], NOW, 1), found / "server.pem", found / "server.key")
    write_pair(make_client(authority, "alice", NOW, 1), found / "alice.pem", found / "alice.key")
    return found


class Raw(asyncio.Transport):
    """The socket's transport; the other side is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_closed = self.is_paused = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing."""


class Inside(asyncio.Protocol):
    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.events: list[str] = []

    def data_received(self, data: bytes) -> None:
        self.received.append(data)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Line:
    """A client and the broker's side of its connection."""

    def __init__(self, directory: Path, server: TlsSettings | None = None, client: str = "") -> None:
        settings = server or TlsSettings(str(directory / "server.pem"), str(directory / "server.key"))
        context = load_context(settings)
        assert context is not None
        self.clock = ManualClock()
        self.raw, self.inside = Raw(), Inside()
        self.events: list[str] = []
        self.tls = TlsTransport(
            self.raw, context, self.clock, self._agreed, lambda reason: self.events.append(f"failed: {reason}"),
            lambda: self.events.append("ended"),
        )  # fmt: skip
        trust = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        if client:
            trust.load_cert_chain(directory / f"{client}.pem", directory / f"{client}.key")
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trust.wrap_bio(self._in, self._out, server_hostname="localhost")

    def _agreed(self, transport: TlsTransport) -> None:
        self.events.append("agreed")
        transport.set_protocol(self.inside)

    def shake_hands(self) -> None:
        for _ in range(5):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.exchange()

    def exchange(self) -> None:
        """What each has written reaches the other."""
        if self._out.pending:
            self.tls.data_received(self._out.read())
        self._in.write(bytes(self.raw.sent))
        self.raw.sent.clear()

    def read(self) -> bytes:
        found = b""
        try:
            while piece := self.client.read(65536):
                found += piece
        except ssl.SSLWantReadError:
            pass
        return found

    def encrypted(self, data: bytes) -> bytes:
        self.client.write(data)
        return self._out.read()


@pytest.fixture
def line(directory: Path) -> Line:
    made = Line(directory)
    made.shake_hands()
    assert made.events == ["agreed"]
    return made


def test_what_comes_and_what_goes(line: Line) -> None:
    line.tls.data_received(line.encrypted(b"hello"))
    line.tls.write(b"answer")
    line.exchange()
    assert (line.inside.received, line.read()) == ([b"hello"], b"answer")


def test_pieces_of_any_size_make_the_same(line: Line) -> None:
    data = line.encrypted(b"x" * 10_000)
    for start in range(0, len(data), 7):
        line.tls.data_received(data[start : start + 7])
    assert b"".join(line.inside.received) == b"x" * 10_000


def test_a_large_answer_waits_unencrypted_while_the_socket_is_full(line: Line) -> None:
    body = b"y" * 300_000
    line.tls.pause_writing()
    line.tls.write(body)
    assert (bytes(line.raw.sent), line.inside.events) == (b"", ["pause"])
    line.tls.resume_writing()
    line.exchange()
    assert (line.read() == body, line.inside.events) == (True, ["pause", "resume"])


def test_a_close_waits_for_what_was_written(line: Line) -> None:
    line.tls.pause_writing()
    line.tls.write(b"bye")
    line.tls.close()
    assert not line.raw.is_closing()
    line.tls.resume_writing()
    assert line.raw.is_closing()
    line._in.write(bytes(line.raw.sent))
    assert line.client.read(10) == b"bye"
    assert line.client.read(10) == b"", "the end is told, so it is not taken for a cut"


def test_a_client_that_says_goodbye_is_answered(line: Line) -> None:
    line.client.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        line.client.unwrap()
    line.exchange()
    assert (line.inside.received, line.raw.is_closed) == ([b"last"], True)


def test_nothing_is_handed_on_while_reading_is_paused(line: Line) -> None:
    async def main() -> None:
        line.tls.pause_reading()
        line.tls.data_received(line.encrypted(b"later"))
        assert line.inside.received == []
        line.tls.resume_reading()
        await asyncio.sleep(0)
        assert line.inside.received == [b"later"]
        assert not line.raw.is_paused

    asyncio.run(main())


def test_many_small_records_take_several_turns(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join([line.encrypted(b"x") for _ in range(6000)])
    ticks = iter(range(10**6))
    monkeypatch.setattr(line.clock, "monotonic", lambda: next(ticks) * 0.006)

    async def main() -> int:
        line.tls.data_received(data)
        turns = 1
        while line.raw.is_paused:
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) > 2
    assert b"".join(line.inside.received) == b"x" * 6000


def test_records_without_content_end_the_connection(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line.tls, "_read", lambda content: None)  # as if they changed keys only
    for _ in range(tls_module.MAX_EMPTY_BYTES // 1000 + 2):
        if not line.raw.is_closed:
            line.tls.data_received(b"x" * 1000)
    assert line.raw.is_closed


def test_what_is_no_tls_fails(directory: Path) -> None:
    line = Line(directory)
    line.tls.data_received(b"\x16\x03\x01\x00\x05hello")
    assert line.raw.is_closed
    assert line.events[0].startswith("failed: ")


def test_a_handshake_has_a_size(directory: Path) -> None:
    line = Line(directory)
    line.tls.data_received(b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + b"x" * 16_379)
    for _ in range(10):
        if not line.raw.is_closed:
            line.tls.data_received(b"\x16\x03\x01\x40\x00" + b"x" * 16_384)
    assert line.raw.is_closed
    assert line.events[0].startswith("failed: ")


def test_a_connection_that_ends_early_is_told(directory: Path) -> None:
    line = Line(directory)
    line.tls.connection_lost(None)
    assert line.events == ["ended"]


def test_a_damaged_record_ends_the_connection(line: Line) -> None:
    data = bytearray(line.encrypted(b"hello"))
    data[-1] ^= 1
    line.tls.data_received(bytes(data))
    assert (line.inside.received, line.raw.is_closed) == ([], True)
    line.tls.connection_lost(None)
    assert line.inside.events == ["lost"]


@pytest.mark.parametrize(
    ("asked", "client", "subject"),
    [("none", "alice", ""), ("optional", "", ""), ("optional", "alice", "CN=alice"), ("required", "alice", "CN=alice")],
)
def test_certificates_of_clients(directory: Path, asked: Any, client: str, subject: str) -> None:
    ca = str(directory / "ca.pem") if asked != "none" else ""
    settings = TlsSettings(str(directory / "server.pem"), str(directory / "server.key"), ca, asked)
    line = Line(directory, settings, client)
    line.shake_hands()
    assert line.events == ["agreed"]
    assert certificate_subject(line.tls.peer_certificate) == subject


def test_a_required_certificate_that_is_missing_fails(directory: Path) -> None:
    settings = TlsSettings(
        str(directory / "server.pem"), str(directory / "server.key"), str(directory / "ca.pem"), "required"
    )
    line = Line(directory, settings)
    line.shake_hands()
    assert line.events[0].startswith("failed: ")


def test_subjects_are_written_so_that_none_can_be_taken_for_another() -> None:
    def subject(*parts: tuple[str, str]) -> str:
        return certificate_subject({"subject": tuple([(part,) for part in parts])})

    assert subject(("organizationName", "O"), ("commonName", "alice")) == "CN=alice,O=O"
    assert subject(("commonName", "alice,O=O")) == "CN=alice\\,O\\=O"
    assert subject(("commonName", "a\x00")) != subject(("commonName", "a\x01"))
    assert subject(("commonName", " a")) == "CN=\\ a"
    assert certificate_subject({"subject": ((("commonName", "a"), ("userId", "b")),)}) == "CN=a+UID=b"
    assert certificate_subject(None) == ""
