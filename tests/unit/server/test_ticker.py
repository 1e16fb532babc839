"""The process's tick: whatever fails in a call that is due, the others are made, and the next tick comes."""

import asyncio

import pytest

from quire.clock import ManualClock
from quire.errors import StoreError
from quire.scheduler import Scheduler
from quire.server.event_loop import TICK, Ticker


def test_a_call_that_fails_ends_no_tick_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock, made = ManualClock(), list[str]()

    def fail() -> None:
        raise StoreError("a read failed")

    async def tick() -> None:
        scheduler = Scheduler(clock)
        ticker = Ticker(scheduler, clock)
        scheduler.call_later(1.0, fail)
        scheduler.call_later(1.0, lambda: made.append("other"))
        clock.advance(1.0)
        ticker.begin()
        first = ticker._next
        assert first is not None
        first.cancel()
        ticker._tick()  # the one that was asked for
        ticker.end()
        assert first.when() - asyncio.get_running_loop().time() <= TICK

    asyncio.run(tick())
    assert made == ["other"]
    (record,) = caplog.records
    assert record.event == "timer.failed"  # type: ignore[attr-defined]
    assert "a read failed" in record.getMessage()
    assert "test_ticker.py" in record.getMessage()
