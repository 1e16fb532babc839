"""A link whose other side speaks something else than OpenWire."""

import asyncio
from typing import Any

import pytest

from quire.client.link import Link
from quire.clock import SystemClock
from quire.errors import ProtocolViolation, QuireError, WrongProtocol
from quire.protocols.openwire.negotiation import WireFormat


@pytest.mark.parametrize(("answer", "error", "text"), [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", WrongProtocol, "speaks HTTP, not OpenWire"),
    (b"ERROR\nmessage:no\n\n\0", WrongProtocol, "speaks STOMP, not OpenWire"),
    (b"\x15\x03\x03\x00\x02\x02\x46", WrongProtocol, "speaks TLS, not OpenWire: write ssl://"),
    (b"AMQP\x00\x01\x00\x00", WrongProtocol, "speaks AMQP, not OpenWire"),
    (b"\xff\xff\xff\xff\x00", QuireError, "size of a frame"),
    (b"\x00\x00\x00\x02\xee\x00", ProtocolViolation, "type"),
])  # fmt: skip
def test_the_protocol_of_the_other_side_is_named(answer: bytes, error: type[QuireError], text: str) -> None:
    owner: Any = None

    async def scenario() -> None:
        link = Link(owner, WireFormat(version=12, max_frame_size=1 << 26), SystemClock(), "port 61613 of a")
        link.data_received(answer)
        with pytest.raises(error, match=text) as caught:
            await link.agreed()
        assert isinstance(caught.value, WrongProtocol) == (error is WrongProtocol)

    asyncio.run(scenario())
