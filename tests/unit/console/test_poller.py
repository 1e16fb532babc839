"""Pollers: pages that ask the same are asked for once, and hidden ones not at all."""

import asyncio
from typing import Any

import httpx

from quire.console.session import BrokerApi, Caller, Pollers
from quire.errors import BrokerUnreachable, QuireError
from tests.unit.console.fake_broker import FakeBroker


def caller(broker: FakeBroker, authorization: str | None = None) -> Caller:
    return Caller(BrokerApi("http://broker:8161", broker), authorization, {})


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_two_pages_of_one_user_share_a_question() -> None:
    async def scenario() -> None:
        broker, pollers, taken = FakeBroker(), Pollers(), list[Any]()
        one = caller(broker)
        watches = [pollers.watch(one, "/overview", {}, 0.0, taken.append) for _ in range(3)]
        watches.append(pollers.watch(one, "/overview", {"x": 1}, 0.0, taken.append))
        watches.append(pollers.watch(caller(broker, "Bearer other"), "/overview", {}, 0.0, taken.append))
        assert len(pollers) == 3
        for watch in watches[:3]:
            watch.show(seen=True)
        while not broker.requests:
            await asyncio.sleep(0)
        await rounds(50)
        assert len(taken) >= 3
        assert len(taken) % 3 == 0
        assert len(broker.requests) <= len(taken) // 3 + 1
        for watch in watches:
            watch.show(seen=False)
        await rounds(5)

    asyncio.run(scenario())


def test_a_hidden_page_asks_nothing_and_one_that_comes_back_asks_again() -> None:
    async def scenario() -> None:
        broker, pollers, taken = FakeBroker(), Pollers(), list[Any]()
        watch = pollers.watch(caller(broker), "/overview", {}, 0.0, taken.append)
        await rounds(20)
        assert broker.requests == []
        for _ in range(2):
            before = len(broker.requests)
            watch.show(seen=True)
            watch.show(seen=True)
            while len(broker.requests) == before:
                await asyncio.sleep(0)
            watch.show(seen=False)
            await rounds(5)
            asked = len(broker.requests)
            await rounds(20)
            assert len(broker.requests) == asked

    asyncio.run(scenario())


def test_pages_are_told_why_there_is_no_answer() -> None:
    async def scenario() -> None:
        broker, taken = FakeBroker(), list[dict[str, Any] | QuireError]()
        watch = Pollers().watch(caller(broker), "/overview", {}, 0.0, taken.append)
        broker.failure = httpx.ConnectError("refused")
        watch.show(seen=True)
        while not taken:
            await asyncio.sleep(0)
        watch.show(seen=False)
        assert isinstance(taken[0], BrokerUnreachable)

    asyncio.run(scenario())


def test_pollers_without_a_page_are_forgotten() -> None:
    async def scenario() -> None:
        pollers, one = Pollers(), caller(FakeBroker())
        for place in range(100):
            pollers.watch(one, "/overview", {"place": place}, 60.0, lambda answer: None).close()
        assert len(pollers) == 1

    asyncio.run(scenario())
