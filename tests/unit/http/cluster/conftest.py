"""The HTTP API of three shards, joined in memory: no socket, no thread, no waiting."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from quire.cluster.cluster_map import ClusterMap, Peer, PinRow, Placement
from quire.destination import queue
from quire.errors import ShardUnavailable
from quire.http.app import Application
from quire.http.cluster_router import ClusterRouter, ShardCalls
from quire.server.cluster.kept_pins import ClusterContext, KeptPins
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import MAX_STEPS, Api

SHARDS = 3


class MemoryRequest:
    """A request to another shard (``ShardRequest``), in memory."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router
        self._body = b""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    async def __aenter__(self) -> "MemoryRequest":
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Nothing is open."""

    async def send(self, method: str, target: str, headers: list[tuple[str, str]]) -> None:
        self._head = method, target, [header for header in headers if header[0] != "transfer-encoding"]

    async def send_piece(self, piece: bytes) -> None:
        self._body += piece

    async def finish(self) -> None:
        method, target, headers = self._head
        transport = httpx.ASGITransport(app=self._router, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            self._answer = await client.request(method, target, headers=headers, content=self._body)
        self.status, self.headers = self._answer.status_code, self._answer.headers.raw

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self._answer.content


class Cluster:
    """Three shards, each with a broker that moves a step at a time.

    Attributes:
        apis: the brokers.
        maps: what each of them knows of the cluster.
        pins: what the database is told, by placement key.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.apis = [Api(SteppedBroker(settings())) for _ in range(SHARDS)]
        self.maps = [ClusterMap(shard, SHARDS, Placement(settings())) for shard in range(SHARDS)]
        self.pins: dict[str, PinRow] = {}
        self._routers = []
        for api, map in zip(self.apis, self.maps, strict=True):
            map.update({shard: Peer("", 1, f"b{shard}", f"shard-{shard}:1") for shard in range(SHARDS)}, {})
            pins = KeptPins(map, lambda row: self.pins.update({row.key: row}))
            pins.attach(api.stepped.broker)
            context = ClusterContext(map, pins, b"secret", f"b{map.own}", "postgresql://u@h/n")
            api.application = Application(api.service, context)
            self._routers.append(ClusterRouter(api.application, api.service, context))
        monkeypatch.setattr(ShardCalls, "_request", lambda calls, shard: self._request(calls, shard))

    def _request(self, calls: ShardCalls, shard: int) -> MemoryRequest:
        if calls._context.map.peer(shard) is None:
            raise ShardUnavailable(f"no broker runs shard {shard} now", shard=shard)
        return MemoryRequest(self._routers[shard])

    def call(self, shard: int, method: str, path: str, *, base: str = "/api/v1", **request: Any) -> httpx.Response:
        """Make a call at a shard and wait for its answer."""
        return asyncio.run(self._call(shard, method, base + path, request))

    async def _call(self, shard: int, method: str, path: str, request: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._routers[shard], raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8161") as client:
            answer = asyncio.ensure_future(client.request(method, path, **request))
            for _ in range(MAX_STEPS):
                if answer.done():
                    return await answer
                for api in self.apis:
                    api.stepped.run()
                await asyncio.sleep(0)
        raise AssertionError(f"no answer to {method} {path}")

    def error(self, shard: int, method: str, path: str, **request: Any) -> tuple[int, str]:
        """Make a call that fails; its status and the error's code."""
        answer = self.call(shard, method, path, **request)
        return answer.status_code, answer.json()["error"]["code"]

    def name_at(self, shard: int, number: int = 0) -> str:
        """The name of a queue that lies at a shard."""
        names = [f"q{number}" for number in range(100)]
        return [name for name in names if self.shard_of(name) == shard][number]

    def shard_of(self, name: str) -> int:
        """The shard of a queue."""
        return self.maps[0].shard_of(queue(name))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)
