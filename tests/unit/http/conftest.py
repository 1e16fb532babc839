"""The web application over a broker that moves a step at a time: no socket, no thread, no waiting."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire.broker.core.core import HoldCause
from quire.broker.dead_letter import dead_letter_names
from quire.broker.transactions.decisions import Xid
from quire.broker.transactions.transaction import HeldSend
from quire.http.app import Application
from quire.security import Security
from quire.server.service import Service
from quire.store.disk import Disk
from quire.store.memory import MemoryStore
from quire.testing.stepped import Inline, SteppedBroker
from tests.unit.broker.harness import core_session, settings

MAX_STEPS = 10_000


class Api:
    """Calls a broker's HTTP API, and runs the broker meanwhile."""

    def __init__(self, stepped: SteppedBroker) -> None:
        self.stepped = stepped
        self.service = Service(stepped.settings, stepped.store, clock=stepped.clock)
        self.service.broker = stepped.broker
        in_memory = replace(stepped.settings, store=replace(stepped.settings.store, url="memory:"))
        self.service.security = Security(
            in_memory, stepped.clock, stepped.broker.core.scheduler, Inline(), Inline(), Inline(),
            dead_letter_names(stepped.settings.policies),
        )  # fmt: skip
        self.service.gate = stepped.gate
        self.service.http_address = "127.0.0.1:8161"
        self.service.stomp_address = "127.0.0.1:61613"
        self.application = Application(self.service)

    def call(self, method: str, path: str, *, base: str = "/api/v1", **request: Any) -> httpx.Response:
        return asyncio.run(self._call(method, base + path, request))

    async def _call(self, method: str, path: str, request: dict[str, Any], *, idle: bool = False) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8161") as client:
            answer = asyncio.ensure_future(client.request(method, path, **request))
            if idle:  # somebody else runs the broker
                return await answer
            for _ in range(MAX_STEPS):
                if answer.done():
                    return await answer
                self.stepped.run()
                await asyncio.sleep(0)
        raise AssertionError(f"no answer to {method} {path}")

    def error(self, method: str, path: str, **request: Any) -> tuple[int, str]:
        answer = self.call(method, path, **request)
        detail = answer.json()["error"]
        assert set(detail) == {"code", "text", "advice", "data"}
        return answer.status_code, detail["code"]


def prepare(api: Api, xid: Xid) -> None:
    """Have a prepared transaction that sends a message."""
    broker = api.stepped.broker
    branch = broker.xa.start(xid, core_session(api.stepped.connect()))
    send = HeldSend("/queue/q", b"message-id:1\ntimestamp:1\n\n", 0, 4, True)
    branch.transaction.send(broker.target("/queue/q"), send)
    branch.end()
    branch.prepare()
    api.stepped.run()


@pytest.fixture
def api() -> Api:
    return Api(SteppedBroker(settings(stomp={"max_body": 1000})))


def watch_disk(api: Api, directory: Path, free: int = 500) -> None:
    """Have the broker watch a disk for its store, with so much free beside the reserve and a limit of 1000 bytes."""
    store = MemoryStore()
    store.open()
    store.reserve_file = directory / "reserve"
    api.stepped.broker.disks.watch({HoldCause.STORE_DISK: Disk(store, 1000, lambda _: free)})
