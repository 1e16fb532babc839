"""STOMP over WebSocket, without sockets: who may connect, what is taken, and what is too much."""

import asyncio
from typing import Any

import h11
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from quire.errors import ProtocolViolation
from quire.http.app import Application
from quire.server.listener import Accepted
from quire.settings import HttpSettings
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api
from tests.unit.http.test_http_connection import Wire

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
HOST = "127.0.0.1:8161"


class Peer(Wire):
    """The socket of a browser."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5000) if name == "peername" else default


class Browser:
    """A browser, and the broker's side of its connection."""

    def __init__(self, api: Api, origin: str | None = None, subprotocols: tuple[str, ...] = ("v12.stomp",)) -> None:
        service = api.service
        self.api, self.wire = api, Peer()
        self._client = ClientProtocol(
            parse_uri(f"ws://{HOST}/stomp"), subprotocols=[Subprotocol(name) for name in subprotocols]
        )
        request = self._client.connect()
        if origin is not None:
            request.headers["Origin"] = origin
        headers = [(name.encode(), value.encode()) for name, value in request.headers.raw_items()]
        accepted = Accepted(service.acceptors.admission, "http", "127.0.0.1")
        self.accepted = accepted
        made = h11.Request(method=b"GET", target=b"/stomp", headers=headers)
        self._client.send_request(request)
        self._client.data_to_send()
        self.inside: Any = service_upgrade(api, made, self.wire, accepted)
        self.read()

    def read(self) -> bytes:
        """The octets of STOMP that have come."""
        self.api.stepped.run()
        self._client.receive_data(bytes(self.wire.written))
        self.wire.written.clear()
        return b"".join([bytes(event.data) for event in self._client.events_received()
                         if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY)])  # fmt: skip

    def send(self, data: bytes, *, text: bool = True) -> None:
        (self._client.send_text if text else self._client.send_binary)(data)
        self.feed(b"".join(self._client.data_to_send()))

    def feed(self, data: bytes) -> None:
        self.inside.data_received(data)
        self.api.stepped.run()


def service_upgrade(api: Api, request: h11.Request, wire: Peer, accepted: Accepted) -> asyncio.Protocol:
    from quire.server.stomp.stomp_door import StompDoors

    api.service._stomp = StompDoors(api.stepped.broker, api.stepped.gate, api.stepped.session_of)
    application: Application = api.application
    return application.upgrade(request, wire, accepted)


def test_a_browser_speaks_stomp(api: Api) -> None:
    browser = Browser(api, origin=f"http://{HOST}")
    browser.send(CONNECT)
    assert browser.read().startswith(b"CONNECTED\nversion:1.2")
    assert browser.accepted.door == "websocket"
    browser.send(b"SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0SEND\ndestination:/queue/q\n\nbody\0", text=False)
    assert b"\n\nbody\0" in browser.read()


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:8161", "null", "http://127.0.0.1"])
def test_pages_of_other_sites_are_refused(api: Api, origin: str) -> None:
    with pytest.raises(ProtocolViolation, match="refuses requests from pages"):
        Browser(api, origin)


def test_pages_of_sites_that_are_named_may_connect(api: Api) -> None:
    api.service.settings = settings(http={"websocket_origins": "https://app.example https://b.example"})
    assert isinstance(api.service.settings.http, HttpSettings)
    Browser(api, "https://app.example").send(CONNECT)
    with pytest.raises(ProtocolViolation):
        Browser(api, "https://app.example.evil")


def test_a_web_socket_that_does_not_speak_stomp_is_refused(api: Api) -> None:
    with pytest.raises(ProtocolViolation, match="WebSocket is refused"):
        Browser(api, subprotocols=("mqtt",))


def test_frames_are_small_before_the_login_and_larger_behind_it(api: Api) -> None:
    browser = Browser(api)
    browser.send(b"x" * 20_000)
    assert browser.wire.is_closed
    browser = Browser(api)
    browser.send(CONNECT)
    browser.send(b"\n" * 500_000 + b"SEND\ndestination:/queue/q\n\nx\0")
    assert (browser.wire.is_closed, api.stepped.queue("q").depth) == (False, 1)
    browser.send(b"x" * (1 << 20) + b"y")
    assert browser.wire.is_closed


def test_unfinished_frames_count(api: Api) -> None:
    browser = Browser(api)
    browser.send(CONNECT)
    core = api.stepped.broker.core
    before = core.partial_bytes
    browser.feed(b"\x82\xff" + (900_000).to_bytes(8, "big") + b"mask" + b"x" * 100_000)
    assert core.partial_bytes - before >= 100_000
    browser.inside.connection_lost(None)
    assert core.partial_bytes == before


def test_what_is_no_text_comes_as_binary(api: Api) -> None:
    browser = Browser(api)
    browser.send(CONNECT)
    browser.read()
    browser.send(b"SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0")
    browser.send(b"SEND\ndestination:/queue/q\ncontent-length:2\n\n\xff\xfe\0", text=False)
    api.stepped.run()
    assert browser.wire.written[0] == 0x82
    assert b"\xff\xfe" in browser.read()


def test_a_goodbye_ends_the_session(api: Api) -> None:
    browser = Browser(api)
    browser.send(CONNECT)
    browser._client.send_close(1000)
    browser.feed(b"".join(browser._client.data_to_send()))
    assert browser.wire.is_closed


def test_many_tiny_frames_take_several_turns(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        browser = Browser(api)
        browser.send(CONNECT)
        ticks = iter(range(10**6))
        monkeypatch.setattr(browser.inside._clock, "monotonic", lambda: next(ticks) * 0.006)
        browser.inside.data_received(b"\x82\x81mask" + bytes([ord("\n") ^ ord("m")]) * 1 + (b"\x82\x80mask" * 2000))
        turns = 0
        while browser.wire.is_paused:
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) > 1
