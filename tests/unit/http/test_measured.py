"""Requests are measured stretch by stretch: a wait is nobody's turn."""

import asyncio

import pytest

from quire.broker.core.core import TurnMeter
from quire.clock import ManualClock
from quire.http.operations import Measured
from tests.unit.http.conftest import Api


def test_each_stretch_between_two_waits_is_a_turn() -> None:
    clock = ManualClock()
    meter = TurnMeter(clock)

    async def request() -> None:
        clock.advance(0.02)
        await asyncio.sleep(0)
        clock.advance(0.03)

    async def serve() -> None:
        await Measured(request(), meter, "GET /")

    asyncio.run(serve())
    assert sum(meter.counts) == 2
    assert meter.take_longest() == pytest.approx(0.03)


def test_errors_and_cancellations_go_through() -> None:
    meter = TurnMeter(ManualClock())
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("wrong")

    async def serve() -> None:
        async def measured() -> None:
            await Measured(waits(), meter, "GET /")

        task = asyncio.ensure_future(measured())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ValueError, match="wrong"):
            await Measured(fails(), meter, "GET /")

    asyncio.run(serve())
    assert ended == ["cancelled"]


def test_requests_to_the_api_are_measured(api: Api) -> None:
    before = sum(api.stepped.broker.core.meter.counts)
    api.call("GET", "/broker")
    assert sum(api.stepped.broker.core.meter.counts) > before
