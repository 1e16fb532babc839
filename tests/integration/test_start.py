"""In which order a broker's ports open: a client that STOMP answers finds HTTP open, and the broker announced."""

import asyncio
import socket
from pathlib import Path

import pytest

from quire.server.service import Service
from quire.settings import Settings, split_address
from quire.store.base import Sync
from quire.store.urls import store_for_url
from tests.unit.broker.harness import settings

pytestmark = pytest.mark.slow

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
SHORT = 0.3


class SlowHttp:
    """An HTTP server that takes its time to open, and looks at STOMP meanwhile."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def open(self, service: Service, listener: socket.socket) -> None:
        """Connect to both ports before this one is served."""
        for address in (service.http_address, service.stomp_address):
            reader, writer = await asyncio.open_connection(*split_address(address))
            writer.write(CONNECT)
            try:
                await asyncio.wait_for(reader.read(1), SHORT)
                self.log.append("answered")
            except TimeoutError:
                self.log.append("connected")
            writer.close()
        listener.close()

    async def start(self) -> None:
        """Nothing."""

    def reload(self, settings: Settings) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Nothing."""


def test_http_opens_first_and_stomp_answers_when_all_is_announced(tmp_path: Path) -> None:
    async def main() -> list[str]:
        http = SlowHttp()
        free = {"address": "127.0.0.1:0"}
        local = settings(store={"data": str(tmp_path)}, stomp=free, openwire=free, http=free)
        service = Service(local, store_for_url("memory:", Sync.NEVER), http)
        await service.take_store(standby=False)
        await service.start(lambda: http.log.append("announced"))
        reader, writer = await asyncio.open_connection(*split_address(service.stomp_address))
        writer.write(CONNECT)
        http.log.append((await reader.readline()).decode().strip())
        writer.close()
        await service.stop()
        return http.log

    assert asyncio.run(main()) == ["connected", "connected", "announced", "CONNECTED"]
