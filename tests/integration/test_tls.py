"""A broker as a process with a certificate: every port and every client with TLS, and what is refused."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect as web_socket
from websockets.typing import Subprotocol

from quire.client import Queue
from quire.client.sync import connect

pytestmark = pytest.mark.slow

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
LIMIT = 90.0


def quire(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line."""
    command = [sys.executable, "-m", "quire.cli.main", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


class Secured:
    """A broker that runs with the certificate in ``tls``; the section of settings and more can be given."""

    def __init__(self, directory: Path, tls: str = "", more: str = "") -> None:
        self.directory = directory
        self.data = directory / "data"
        made = quire("tls", "make", str(directory / "tls"))
        assert made.returncode == 0, made.stderr
        self.ca = directory / "tls" / "ca.pem"
        self.context = ssl.create_default_context(cafile=str(self.ca))
        (directory / "quire.toml").write_text(
            f'{more}\n[tls]\ncertificate = "{directory}/tls/server.pem"\nkey = "{directory}/tls/server.key"\n{tls}\n'
            f'[store]\ndata = "{self.data}"\n'
            '[stomp]\naddress = "127.0.0.1:0"\n[openwire]\naddress = "127.0.0.1:0"\n[http]\naddress = "127.0.0.1:0"\n'
        )

    @contextlib.contextmanager
    def running(self) -> Iterator["Secured"]:
        log = (self.directory / "log").open("wb")
        command = [
            sys.executable,
            "-m",
            "quire.cli.main",
            "broker",
            "start",
            "--config",
            str(self.directory / "quire.toml"),
        ]
        with log, subprocess.Popen(command, stdout=log, stderr=log) as self.process:
            try:
                self._await()
                yield self
                self.process.terminate()
                assert self.process.wait(LIMIT) == 0, self.log
            finally:
                self.process.kill()

    def _await(self) -> None:
        deadline = time.monotonic() + LIMIT
        while not (self.data / "broker.json").exists():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)
        self.facts: dict[str, Any] = json.loads((self.data / "broker.json").read_text())

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def address(self, door: str) -> tuple[str, int]:
        host, _, port = self.facts[door].rpartition(":")
        return host, int(port)

    def plain(self, door: str) -> socket.socket:
        return socket.create_connection(self.address(door), LIMIT)

    def certificate(self) -> bytes | None:
        """The certificate that new connections get."""
        with self.encrypted("stomp") as connection:
            return connection.getpeercert(binary_form=True)

    def encrypted(self, door: str, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        return (context or self.context).wrap_socket(self.plain(door), server_hostname="localhost")


def answer(connection: socket.socket, sent: bytes, wanted: bytes) -> bytes:
    """Send, and read until something has come, or the broker closes."""
    connection.sendall(sent)
    data = b""
    while wanted not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("tls")).running() as broker:
        yield broker


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One that takes no connection without TLS."""
    with Secured(tmp_path_factory.mktemp("strict"), 'plain = "nowhere"').running() as broker:
        yield broker


def test_one_port_takes_clients_with_and_without_tls(secured: Secured) -> None:
    for connection in (secured.plain("stomp"), secured.encrypted("stomp")):
        with connection:
            assert answer(connection, CONNECT, b"\0").startswith(b"CONNECTED")


def test_a_large_message_goes_both_ways(secured: Secured) -> None:
    body = os.urandom(3_000_000)
    with secured.encrypted("stomp") as connection:
        answer(connection, CONNECT, b"\0")
        connection.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/large\nack:auto\n\n\0")
        head = b"SEND\ndestination:/queue/large\ncontent-length:%d\n\n" % len(body)
        assert body in answer(connection, head + body + b"\0", body[-100:])


def test_openwire_with_tls(secured: Secured) -> None:
    host, port = secured.address("openwire")
    with connect(f"ssl://{host}:{port}", tls=secured.context) as connection:
        session = connection.session()
        session.producer(Queue("ow")).send("text")
        message = session.consumer(Queue("ow")).receive(10)
        assert message is not None
        assert message.body == "text"


def test_http_with_tls(secured: Secured) -> None:
    request = b"GET /api/v1/broker HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with secured.encrypted("http") as connection:
        assert answer(connection, request, b"}").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_stomp_over_web_socket(secured: Secured, scheme: str) -> None:
    host, port = secured.address("http")
    context = secured.context if scheme == "wss" else None
    with web_socket(f"{scheme}://{host}:{port}/stomp", subprotocols=[Subprotocol("v12.stomp")], ssl=context) as browser:
        assert browser.subprotocol == "v12.stomp"
        browser.send(CONNECT.decode())
        assert str(browser.recv(5)).startswith("CONNECTED")
        browser.send(f"SUBSCRIBE\nid:1\ndestination:/queue/{scheme}\n\n\0")
        browser.send(
            [f"SEND\ndestination:/queue/{scheme}\nreceipt:r\n\n", "h\N{LATIN SMALL LETTER E WITH ACUTE}", "llo\0"]
        )
        received = ""
        while "RECEIPT" not in received or "MESSAGE" not in received:
            received += str(browser.recv(5))
        assert "h\N{LATIN SMALL LETTER E WITH ACUTE}llo" in received


def test_no_connection_without_tls_where_none_is_allowed(strict: Secured) -> None:
    with strict.plain("stomp") as connection:
        assert b"tls-required" in answer(connection, CONNECT, b"\0")
    with strict.plain("http") as connection:
        said = answer(connection, b"GET / HTTP/1.1\r\n\r\n", b"}")
        assert said.startswith(b"HTTP/1.1 403")
        assert b"tls-required" in said
    with strict.plain("openwire") as connection:
        assert b"tls-required" in answer(connection, b"\0\0\0\x10", b"never")


def test_the_command_line_speaks_tls(strict: Secured) -> None:
    there = ("--data", str(strict.data), "--tls-ca", str(strict.ca))
    assert strict.facts["scheme"] == "https"
    assert quire("queue", "ls", *there).returncode == 0
    unknown = quire("queue", "ls", "--data", str(strict.data))
    assert (unknown.returncode, "--tls-ca" in unknown.stderr) == (5, True), "the authority is not known"
    assert quire("send", "cli", "hello", *there).returncode == 0
    received = quire("receive", "cli", "--ack", *there)
    assert (received.returncode, "hello" in received.stdout) == (0, True), received.stderr
    measured = quire("perf", "run", "--messages", "2000", "--output", "json", *there)
    assert measured.returncode == 0, measured.stderr
    host, port = strict.address("stomp")
    shown = quire("tls", "show", f"{host}:{port}", "--output", "json")
    assert "127.0.0.1" in json.loads(shown.stdout)["names"]


def test_a_wrong_name_is_refused(strict: Secured) -> None:
    with pytest.raises(ssl.SSLCertVerificationError), strict.plain("stomp") as connection:
        strict.context.wrap_socket(connection, server_hostname="other.example")


def test_old_versions_are_refused(strict: Secured) -> None:
    context = ssl.create_default_context(cafile=str(strict.ca))
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        strict.encrypted("stomp", context)


def test_certificates_are_read_again_and_no_connection_ends(tmp_path: Path) -> None:
    with Secured(tmp_path).running() as broker:
        connection = broker.encrypted("stomp")
        answer(connection, CONNECT, b"\0")
        first = broker.certificate()
        assert quire("tls", "make", str(tmp_path / "tls")).returncode == 0
        broker.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + LIMIT
        while broker.certificate() == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert b"RECEIPT" in answer(connection, b"SEND\ndestination:/queue/q\nreceipt:1\n\nx\0", b"\0")
        connection.close()
        (tmp_path / "tls" / "server.pem").write_text("no certificate")
        broker.process.send_signal(signal.SIGHUP)
        while "tls.refused" not in broker.log:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        broker.encrypted("stomp").close()


def test_a_client_certificate_is_a_login(tmp_path: Path) -> None:
    users = '[[users]]\nname = "alice"\ncertificates = ["CN=alice"]\nroles = ["administrator"]\n'
    directory = tmp_path / "tls"
    broker = Secured(tmp_path, f'client_ca = "{directory}/ca.pem"\nclient_certificates = "optional"', users)
    assert quire("tls", "make", str(directory), "--client", "alice").returncode == 0
    assert quire("tls", "make", str(directory), "--client", "mallory").returncode == 0
    with broker.running():
        for name, outcome in (("alice", b"CONNECTED"), ("mallory", b"not-authenticated")):
            context = ssl.create_default_context(cafile=str(broker.ca))
            context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
            with broker.encrypted("stomp", context) as connection:
                assert outcome in answer(connection, CONNECT, b"\0")
        with broker.encrypted("stomp") as connection:
            assert b"not-authenticated" in answer(connection, CONNECT, b"\0")


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    broken = {
        "QUIRE_TLS__CERTIFICATE": str(tmp_path / "missing.pem"),
        "QUIRE_TLS__CLIENT_CERTIFICATES": "required",
        "QUIRE_TLS__KEY": "key.pem",
    }
    for name, value in broken.items():
        result = quire("broker", "start", "--data", str(tmp_path / "d"), "--stomp", "127.0.0.1:0", **{name: value})
        assert (result.returncode, "tls." in result.stderr) == (2, True), result.stderr


def test_the_console_takes_tls_and_calls_with_tls_where_clients_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nicegui", reason="the console is not installed")
    monkeypatch.setenv("QUIRE_CONSOLE__ENABLED", "true")
    monkeypatch.setenv("QUIRE_CONSOLE__ADDRESS", "127.0.0.1:0")
    with Secured(tmp_path, 'plain = "nowhere"').running() as broker:
        host, port = broker.address("http")
        with httpx.Client(verify=broker.context, timeout=LIMIT) as browser:
            deadline = time.monotonic() + LIMIT
            while (led := browser.get(f"https://{host}:{port}/")).status_code == 503:
                assert time.monotonic() < deadline, broker.log
                time.sleep(0.1)
            place = led.headers["location"]
            assert place.startswith("https://127.0.0.1:"), place
            page = browser.get(place, headers={"accept": "text/html"}, follow_redirects=True)
        assert page.status_code == 200, page.text[:1000]
        assert "cannot be reached" not in page.text
        assert "console.started" in broker.log or "the console is at https://" in broker.log
