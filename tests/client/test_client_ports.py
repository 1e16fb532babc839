"""The client at ports that are not those of OpenWire: it says at once what they speak."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quire.client import connect
from quire.errors import BrokerUnreachable, WrongProtocol
from quire.testing.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.slow


def refused_by(address: str) -> str:
    """Why a connection is refused."""
    began = time.monotonic()
    with pytest.raises(WrongProtocol) as caught:
        asyncio.run(connect(f"tcp://{address}").open())
    assert time.monotonic() - began < 5
    return str(caught.value)


def test_the_port_of_stomp_is_named_at_once() -> None:
    with EmbeddedBroker() as broker:
        assert refused_by(broker.stomp).endswith("of 127.0.0.1 speaks STOMP, not OpenWire")


def test_the_port_of_http_is_named_at_once(tmp_path: Path) -> None:
    arguments = ["broker", "start", "--data", str(tmp_path / "data"), "--stomp", "127.0.0.1:0",
                 "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0"]  # fmt: skip
    with subprocess.Popen([sys.executable, "-m", "quire.cli.main", *arguments]) as process:
        try:
            deadline = time.monotonic() + 30
            while not (tmp_path / "data" / "broker.json").exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            address = json.loads((tmp_path / "data" / "broker.json").read_text())["http"]
            assert refused_by(address).endswith("of 127.0.0.1 speaks HTTP, not OpenWire")
        finally:
            process.terminate()


def test_a_port_without_tls_is_named() -> None:
    with EmbeddedBroker() as broker, pytest.raises(WrongProtocol, match="write tcp://"):
        asyncio.run(connect(broker.url.replace("tcp:", "ssl:")).open())


def test_a_port_that_says_nothing_is_waited_for_as_long_as_the_url_says() -> None:
    async def scenario() -> None:
        writers: list[asyncio.StreamWriter] = []

        def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BrokerUnreachable, match=r"no answer within 1\.5 s"):
                await connect(f"tcp://127.0.0.1:{port}?connectionTimeout=1500").open()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    asyncio.run(scenario())
