"""The lock of the store: taken, kept, lost, and what a standby says meanwhile. The thread is the test itself."""

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

import pytest

from quire.errors import QuireError, StoreError, StoreFull, StoreLocked, StoreUnreachable
from quire.server.store_lock import HUNG_CHECKS, LOCK_INTERVAL, TAKE_INTERVAL, Found, StoreLock
from quire.store.memory import MemoryStore

OURS = Found(True)
OTHERS = Found(owner="host-2")
AWAY = Found(error=StoreUnreachable("no server"))


class Lock(StoreLock):
    """A lock without a thread: what its calls of the store find comes from the test."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), "host-1", "memory:")
        self.losses: list[QuireError] = []
        self.checks = 0
        self.lost = self.losses.append
        self.checked = self._count

    def _count(self) -> None:
        self.checks += 1

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing: the test does."""


def taking(
    *found: Found, standby: bool, before: Callable[[Lock], None] = lambda lock: None, patience: float = 30.0
) -> tuple[Lock, bool, int]:  # fmt: skip
    """Take a lock; the lock, whether it was taken, and how often the beginning of a wait was told."""

    async def take() -> tuple[Lock, bool, int]:
        lock, waits = Lock(), list[int]()
        task = asyncio.create_task(lock.take(standby=standby, waits=lambda: waits.append(1), patience=patience))
        await asyncio.sleep(0)
        for each in found:
            lock._found(each)
        before(lock)
        return lock, await task, len(waits)

    return run(take())


def run(call: Coroutine[Any, Any, tuple[Lock, bool, int]]) -> tuple[Lock, bool, int]:
    return asyncio.run(call)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.event for record in caplog.records]  # type: ignore[attr-defined]


def test_free_lock_is_taken() -> None:
    _, taken, waits = taking(OURS, standby=False)
    assert (taken, waits) == (True, 0)


@pytest.mark.parametrize(("found", "error"), [(OTHERS, StoreLocked), (AWAY, StoreUnreachable)])
def test_one_that_is_no_standby_does_not_wait(found: Found, error: type[QuireError]) -> None:
    with pytest.raises(error):
        taking(found, standby=False)


def test_one_that_is_no_standby_waits_for_the_lease_of_a_killed_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quire")
    monkeypatch.setattr(MemoryStore, "lease_seconds", 3.0)
    _, taken, waits = taking(OTHERS, OTHERS, OURS, standby=False)
    assert (taken, waits) == (True, 0)
    assert logged(caplog) == ["broker.lease-waited-for"]


def test_one_that_is_no_standby_waits_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quire")
    monkeypatch.setattr(MemoryStore, "lease_seconds", 3.0)
    _, taken, waits = taking(AWAY, AWAY, OTHERS, OURS, standby=False)
    assert (taken, waits) == (True, 0)
    assert logged(caplog) == ["store.waited-for", "broker.lease-waited-for"]
    assert "up to 30 s" in caplog.text
    with pytest.raises(StoreUnreachable):
        taking(AWAY, standby=False, patience=0.0)
    with pytest.raises(StoreFull):
        taking(Found(error=StoreFull("no space")), standby=False)


def test_a_lease_is_waited_for_from_when_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was away for the broker that has the lock too."""
    monkeypatch.setattr(MemoryStore, "lease_seconds", 3.0)

    async def take() -> bool:
        lock, now = Lock(), 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        task = asyncio.create_task(lock.take(standby=False, patience=30.0))
        for each in (AWAY, OTHERS, OURS):
            await asyncio.sleep(0)
            lock._found(each)
            now = 20.0
        return await task

    assert asyncio.run(take())


def test_one_that_is_told_to_stop_while_it_waits_for_a_server_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "lease_seconds", 3.0)
    _, taken, _ = taking(AWAY, standby=False, before=StoreLock.give_up)
    assert not taken


def test_one_that_is_no_standby_waits_no_longer_than_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "lease_seconds", 3.0)

    def pass_time(lock: Lock) -> None:
        loop = asyncio.get_running_loop()
        later = loop.time() + 3.6
        monkeypatch.setattr(loop, "time", lambda: later)

    with pytest.raises(StoreLocked):
        taking(OTHERS, standby=False, before=pass_time)


def test_standby_waits_and_tells_each_change_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "quire")
    _, taken, waits = taking(OTHERS, OTHERS, AWAY, AWAY, OTHERS, OURS, standby=True)
    assert (taken, waits) == (True, 1)
    assert logged(caplog) == ["broker.standby", "broker.standby-unreachable", "broker.standby"]
    assert "host-2" in caplog.text


@pytest.mark.parametrize("error", [StoreFull("no space"), OSError(13, "refused")])
def test_standby_does_not_wait_for_what_waiting_does_not_mend(error: Exception) -> None:
    with pytest.raises(type(error)):
        taking(OTHERS, Found(error=error), standby=True)


def test_standby_that_is_told_to_stop_gives_up() -> None:
    _, taken, _ = taking(OTHERS, standby=True, before=StoreLock.give_up)
    assert not taken


def test_checks_are_told_and_a_loss_is() -> None:
    def later(lock: Lock) -> None:
        lock._found(OURS)
        assert (lock.checks, lock.error) == (1, None)
        lock._found(AWAY)
        assert (lock.checks, lock.error) == (1, AWAY.error)
        lock._found(OURS)
        assert (lock.checks, lock.error) == (2, None)
        assert not lock.losses
        lock._found(Found())
        assert lock.checks == 2

    lock, _, _ = taking(OURS, standby=True, before=later)
    (loss,) = lock.losses
    assert isinstance(loss, StoreLocked)


class Loop:
    """An event loop that keeps what it is to call."""

    def __init__(self) -> None:
        self.found: list[Found] = []

    def call_soon_threadsafe(self, _call: object, found: Found) -> None:
        self.found.append(found)


class ScriptedStore(MemoryStore):
    """Its lock does what a script says: a boolean is the answer, an error is raised."""

    def __init__(self, *answers: bool | Exception) -> None:
        super().__init__()
        self._answers = iter(answers)
        self.asked = 0

    def lock_until(self) -> float:
        return float(self.asked)

    def try_lock(self, owner: str) -> bool:
        return self.check_lock()

    def check_lock(self) -> bool:
        answer = next(self._answers)
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


class Waits:
    """An event that nobody sets, until there were so many waits."""

    def __init__(self, lock: StoreLock, number: int) -> None:
        self.seconds: list[float] = []
        self.ends: list[float] = []  # of the lock, at each wait
        self._lock = lock
        self._number = number

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        self.ends.append(self._lock.until)
        return len(self.seconds) == self._number


def test_thread_tries_often_and_checks_each_second_until_the_lock_is_lost() -> None:
    error = StoreError("no answer")
    lock, loop = StoreLock(ScriptedStore(False, error, True, True, error, False), "me", "u"), Loop()
    waits = lock._ended = Waits(lock, 99)  # type: ignore[assignment]
    lock._run(loop)  # type: ignore[arg-type]
    assert [(found.is_ours, found.error) for found in loop.found] == [
        (False, None), (False, error), (True, None), (True, None), (False, error), (False, None)
    ]  # fmt: skip
    assert waits.ends == [-inf, -inf, 3, 4, 4]
    assert lock.until == -inf
    assert waits.seconds == [TAKE_INTERVAL] * 2 + [LOCK_INTERVAL] * 3


@pytest.mark.parametrize("is_watched", [True, False])
def test_the_lease_is_not_renewed_while_the_event_loop_hangs(
    is_watched: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quire")
    store = ScriptedStore(*[True] * 1000)
    lock, loop = StoreLock(store, "me", "u"), Loop()
    lock.is_watched = is_watched
    renewals: list[int] = []

    class Hanging(Waits):
        """At wait 100 the event loop goes on."""

        def wait(self, seconds: float) -> bool:
            renewals.append(store.asked)
            if len(renewals) == 100:
                lock._found(loop.found[-1])
            return super().wait(seconds)

    lock._ended = Hanging(lock, 110)  # type: ignore[assignment]
    lock._run(loop)  # type: ignore[arg-type]
    assert logged(caplog) == ["loop.hung"] * is_watched
    assert renewals[HUNG_CHECKS - 1] == HUNG_CHECKS
    assert renewals[98] == (HUNG_CHECKS if is_watched else 99)
    assert renewals[-1] == (HUNG_CHECKS + 10 if is_watched else 110)


def test_thread_ends_with_the_lock_and_with_the_event_loop() -> None:
    lock, loop = StoreLock(ScriptedStore(True, True, True), "me", "u"), Loop()
    lock._ended = Waits(lock, 2)  # type: ignore[assignment]
    lock._run(loop)  # type: ignore[arg-type]
    assert len(loop.found) == 2
    closed = asyncio.new_event_loop()
    closed.close()
    StoreLock(ScriptedStore(True), "me", "u")._run(closed)
