"""The process's tick: whatever fails in a call that is due, the others are made, and the next tick comes."""

import asyncio

import pytest

from quire.clock import ManualClock
from quire.errors import StoreError
from quire.server.service import TICK, Service
from quire.settings import Settings
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker


def test_a_call_that_fails_ends_no_tick_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock, made = ManualClock(), list[str]()

    def fail() -> None:
        raise StoreError("a read failed")

    async def tick() -> None:
        service = Service(Settings(), MemoryStore(), clock=clock)
        service.broker = SteppedBroker(clock=clock).broker
        service.scheduler.call_later(1.0, fail)
        service.scheduler.call_later(1.0, lambda: made.append("other"))
        clock.advance(1.0)
        service._tick()
        first = service._ticking
        first.cancel()
        service._tick()  # the one that was asked for
        service._ticking.cancel()
        assert first.when() - asyncio.get_running_loop().time() <= TICK

    asyncio.run(tick())
    assert made == ["other"]
    (record,) = caplog.records
    assert record.event == "timer.failed"  # type: ignore[attr-defined]
    assert "a read failed" in record.getMessage()
    assert "test_service.py" in record.getMessage()
