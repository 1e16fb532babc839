"""Processes of a cluster joined by real connections, with TLS and without: clients reach what the other one has."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quire.cli.tls import make_authority, make_server, write_pair
from quire.cluster.cluster_map import ClusterMap, Peer, Placement
from quire.destination import queue
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.link_server import LinkServer
from quire.server.listener import address_of, listen
from quire.server.service import Service
from quire.settings import split_address
from quire.store.memory import MemoryStore
from tests.unit.broker.harness import settings

pytestmark = pytest.mark.slow

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
LIMIT = 60.0
FREE = {"address": "127.0.0.1:0"}


class Shard:
    """A process of a shard, in the loop of the test."""

    def __init__(self, number: int, directory: Path, tls: dict[str, str]) -> None:
        data = directory / f"shard-{number}"
        data.mkdir()
        self.settings = settings(store={"data": str(data)}, stomp=FREE, openwire=FREE, http=FREE, tls=tls)
        self.map = ClusterMap(number, 2, Placement(self.settings))
        self.map.epoch = 1
        self.listener: socket.socket = listen("127.0.0.1:0")
        self.address = address_of(self.listener)
        self.is_stopped = False
        self.links = LinkServer(self.map, b"secret", KeptPins(self.map, lambda row: None))
        self.service = Service(self.settings, MemoryStore(), member=self.links, tunes_collector=False)

    async def stop(self) -> None:
        """Stop cleanly, once."""
        if not self.is_stopped:
            self.is_stopped = True
            await self.service.stop()

    async def start(self) -> None:
        """Serve clients, and the other process."""
        assert await self.service.take_store(standby=False)
        await self.service.start()
        await self.links.start(self.listener)


@contextlib.asynccontextmanager
async def two_shards(directory: Path, tls: dict[str, str]) -> AsyncIterator[list[Shard]]:
    """A cluster of two processes."""
    shards = [Shard(number, directory, tls) for number in range(2)]
    peers = {shard.map.own: Peer(shard.address, 1) for shard in shards}
    for shard in shards:
        shard.map.update(peers, {})
        await shard.start()
    try:
        yield shards
    finally:
        for shard in shards:
            await shard.stop()


def tls_settings(directory: Path) -> dict[str, str]:
    """Settings with a new certificate."""
    directory.mkdir()
    now = datetime.now(UTC)
    certificate, key = directory / "server.pem", directory / "server.key"
    write_pair(make_server(make_authority(now), ["localhost"], now, 1), certificate, key)
    return {"certificate": str(certificate), "key": str(key), "plain": "loopback"}


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_a_client_reaches_the_other_processes_queue(tmp_path: Path, secured: bool) -> None:
    async def main() -> None:
        tls = tls_settings(tmp_path / "tls") if secured else {}
        async with two_shards(tmp_path, tls) as shards, asyncio.timeout(LIMIT):
            name = next(f"q{n}" for n in range(100) if shards[0].map.shard_of(queue(f"q{n}")) == 1)
            reader, writer = await asyncio.open_connection(*split_address(shards[0].service.stomp_address))
            writer.write(CONNECT)
            body = b"x" * 1_000_000
            for number in range(3):
                head = f"SEND\ndestination:/queue/{name}\nreceipt:{number}\ncontent-length:{len(body)}\n\n"
                writer.write(head.encode() + body + b"\0")
            writer.write(f"SUBSCRIBE\ndestination:/queue/{name}\nid:0\nack:client-individual\n\n\0".encode())
            heard = b""
            while heard.count(b"RECEIPT\n") < 3 or heard.count(body) < 3:
                data = await reader.read(1 << 20)
                assert data
                heard += data
            assert b"ERROR" not in heard
            for number in range(1, 4):
                writer.write(f"ACK\nid:{number}\n\n\0".encode())
            writer.write(b"DISCONNECT\nreceipt:bye\n\n\0")
            assert b"receipt-id:bye" in await reader.read()
            writer.close()
            assert shards[1].service.broker.queue(name).depth == 0
            (accepted,) = shards[1].links.clients.links.values()
            assert accepted.is_encrypted == secured

    asyncio.run(main())


def test_clients_are_told_when_the_process_of_a_shard_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_shards(tmp_path, {}) as shards, asyncio.timeout(LIMIT):
            name = next(f"q{n}" for n in range(100) if shards[0].map.shard_of(queue(f"q{n}")) == 1)
            reader, writer = await asyncio.open_connection(*split_address(shards[0].service.stomp_address))
            writer.write(CONNECT + f"SUBSCRIBE\ndestination:/queue/{name}\nid:0\nreceipt:r\n\n\0".encode())
            assert b"RECEIPT" in await reader.readuntil(b"receipt-id:r")
            await shards[1].stop()
            assert b"broker-stopping" in await reader.read()
            writer.close()

    asyncio.run(main())


def test_clients_are_told_when_the_connection_of_a_link_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_shards(tmp_path, {}) as shards, asyncio.timeout(LIMIT):
            name = next(f"q{n}" for n in range(100) if shards[0].map.shard_of(queue(f"q{n}")) == 1)
            reader, writer = await asyncio.open_connection(*split_address(shards[0].service.stomp_address))
            writer.write(CONNECT + f"SUBSCRIBE\ndestination:/queue/{name}\nid:0\nreceipt:r\n\n\0".encode())
            assert b"RECEIPT" in await reader.readuntil(b"receipt-id:r")
            (link,) = shards[1].links.clients.links
            link.port._transport.abort()  # type: ignore[attr-defined]
            assert b"shard-moved" in await reader.read()
            writer.close()

    asyncio.run(main())
