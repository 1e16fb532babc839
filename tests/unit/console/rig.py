"""A console without a browser and without a broker: its pages are built, its buttons pressed, its requests recorded."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
from nicegui import Client, core, ui
from nicegui.testing.general import prepare_simulation
from nicegui.testing.user import User
from nicegui.testing.user_interaction import UserInteraction
from starlette.types import ASGIApp

from quire.clock import ManualClock
from quire.console.console import Console
from quire.console.session import IDLE_LIMIT, BrokerApi
from tests.unit.console.fake_broker import FakeBroker

BROKER = "http://broker:8161"
OTHER = "http://other:8161"


@cache
def _console() -> tuple[Console, ASGIApp, ManualClock]:
    """The one console of the process: NiceGUI has one application."""
    os.environ["NICEGUI_USER_SIMULATION"] = "true"
    prepare_simulation()
    clock = ManualClock()
    console = Console([BROKER], clock, FakeBroker())
    console.mount()
    return console, console.application("127.0.0.1", allow_open=False, names="console.example"), clock


class Rig:
    def __init__(self, console: Console, app: ASGIApp, broker: FakeBroker, client: httpx.AsyncClient) -> None:
        self.console = console
        self.app = app
        self.broker = broker
        self.http = client  # asks as a browser does, with its cookies
        self.user = User(client)

    async def log_in(self, user: str, password: str) -> httpx.Response:
        form = {"user": user, "password": password, "broker": "broker:8161", "next": "/"}
        return await self.http.post("/login", data=form, headers={"origin": "http://localhost"})

    def element(self, kind: type, **props: object) -> Any:
        assert self.user.client
        found = [
            element for element in self.user.client.elements.values()
            if isinstance(element, kind) and all([element.props.get(name) == value for name, value in props.items()])
        ]  # fmt: skip
        assert len(found) == 1, found
        return found[0]

    def choose(self, text: str) -> None:
        assert self.user.client
        for element in self.user.client.elements.values():
            if isinstance(element, ui.menu_item) and text in [each.text for each in element if hasattr(each, "text")]:
                UserInteraction(self.user, {element}, None).click()
                return
        raise AssertionError(f"no menu has {text}")

    def texts(self) -> list[str]:
        assert self.user.client
        elements = self.user.client.elements.values()
        return [text for element in elements if (text := getattr(element, "text", None))]


@asynccontextmanager
async def rig(broker: FakeBroker, brokers: int = 1) -> AsyncIterator[Rig]:
    console, app, clock = _console()
    console.brokers.clear()
    for url in (BROKER, OTHER)[:brokers]:
        api = BrokerApi(url, broker)
        console.brokers[api.key] = api
    async with core.app.router.lifespan_context(core.app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            try:
                yield Rig(console, app, broker, client)
            finally:
                for opened in list(Client.instances.values()):
                    opened.delete()
                clock.advance(IDLE_LIMIT + 1)
                console.sessions.find(None)  # looks at the time


def with_rig(scenario: Callable[[Rig], Awaitable[None]], broker: FakeBroker | None = None, brokers: int = 1) -> None:
    """Run a scenario with a console, whose clock stands still."""

    async def run() -> None:
        async with rig(broker or FakeBroker(), brokers) as made:
            await scenario(made)

    asyncio.run(run())
