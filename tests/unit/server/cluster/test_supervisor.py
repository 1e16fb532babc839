"""A broker tells the database that it lives, what it runs and what it waits for; and it leaves when it should."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, BrokerRow, PinRow, ShardRow, View
from quire.cluster.directory import LEASE
from quire.errors import InvalidSettings, StoreUnreachable
from quire.server.cluster import broker_process as broker_process_module
from quire.server.cluster.broker_process import (
    HANDOVER_LIMIT,
    HURRY,
    LOOK,
    RENEWAL,
    ShardProcesses,
    Supervisor,
    waited_for,
)
from quire.server.cluster.shard_process import Running, Waiting
from tests.unit.server.cluster.test_shard_processes import FakeProcess, broker

T = TypeVar("T")


class FakeDirectory:
    """The database, in memory."""

    def __init__(self) -> None:
        self.brokers: dict[str, BrokerRow] = {}
        self.shards: dict[int, ShardRow] = {}
        self.renewals = 0
        self.is_away = self.is_name_taken = False
        self.withdrawn: list[tuple[int, int]] = []
        self.pins: list[PinRow] = []

    def renew(self, row: BrokerRow) -> bool:
        self._answer()
        self.renewals += 1
        asked_to_leave = self.brokers.get(row.name, row).leaving
        self.brokers[row.name] = row._replace(leaving=row.leaving or asked_to_leave)
        return not self.is_name_taken

    def read(self) -> View:
        self._answer()
        return View(dict(self.brokers), dict(self.shards), {})

    def announce(self, row: ShardRow) -> bool:
        self._answer()
        self.shards[row.shard] = row
        return True

    def withdraw(self, shard: int, epoch: int) -> None:
        self._answer()
        self.withdrawn.append((shard, epoch))

    def pin(self, row: PinRow) -> None:
        self._answer()
        self.pins.append(row)

    def remove(self, row: BrokerRow) -> None:
        self._answer()
        del self.brokers[row.name]

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnreachable("away")


class Seen:
    """A supervisor of two shards, driven a look at a time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.directory = FakeDirectory()
        self.processes: list[FakeProcess] = []
        self.shard_processes = ShardProcesses("athens", 2, self.clock, self._spawn)
        row = BrokerRow("athens", "", "s", "o", "h", "1", "digest")
        self.supervisor = Supervisor(self.directory, self.shard_processes, row, self.clock, ask)  # type: ignore[arg-type]

    def _spawn(self) -> FakeProcess:
        self.processes.append(FakeProcess())
        return self.processes[-1]

    async def look(self, seconds: float = LOOK) -> None:
        self.clock.advance(seconds)
        await self.supervisor.look()

    async def serve(self) -> None:
        await self.look()
        for process in [process for process in self.processes if process.shard != FRONT]:
            assert process.shard is not None
            self.shard_processes.reported(process, Running(1, "link", "http", 5))
        await self.look()
        self.end(FRONT)
        await self.look()

    def end(self, shard: int) -> None:
        self.shard_processes.ended(next(process for process in self.processes if process.shard == shard))


async def ask(call: Callable[[], T]) -> T:
    return call()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_it_waits_for_a_database_that_is_away_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    comes_at = clock.monotonic() + 10

    async def form() -> str:
        if clock.monotonic() < comes_at:
            raise StoreUnreachable("away")
        return "formed"

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    assert asyncio.run(waited_for(form, clock, 30.0, sleep)) == "formed"
    assert [record.event for record in caplog.records] == ["store.waited-for"]  # type: ignore[attr-defined]
    comes_at += 100
    with pytest.raises(StoreUnreachable):
        asyncio.run(waited_for(form, clock, 30.0, sleep))
    assert clock.monotonic() < comes_at - 60


def test_it_tells_at_once_what_it_waits_for_and_runs_and_then_each_second() -> None:
    async def work() -> None:
        seen = Seen()
        await seen.look()
        for process in seen.processes[:2]:
            seen.shard_processes.reported(process, Waiting())
        await seen.look(0.0)
        assert seen.directory.brokers["athens"].standing_by == {0, 1}
        await seen.serve()
        assert seen.directory.brokers["athens"].standing_by == set()
        assert sorted(seen.directory.shards) == [0, 1]
        renewals = seen.directory.renewals
        for _ in range(10):
            await seen.look(RENEWAL / 2)
        assert seen.directory.renewals == renewals + 5

    run(work())


def test_while_the_database_is_away_what_runs_goes_on_and_afterwards_it_is_told() -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        seen.directory.is_away = True
        seen.end(1)
        for _ in range(20):
            await seen.look()
        assert seen.shard_processes.running == [0]
        assert seen.directory.withdrawn == []
        seen.directory.is_away = False
        await seen.look()
        assert seen.directory.withdrawn == [(1, 5)]

    run(work())


def test_what_shards_have_given_away_is_told_until_the_database_knows_it() -> None:
    seen = Seen()

    async def main() -> None:
        await seen.serve()
        seen.directory.is_away = True
        for version in (2, 3, 1):
            seen.shard_processes.given(PinRow("queue://q", "queue://q", 0, version))
        await seen.look()
        assert seen.directory.pins == []
        seen.directory.is_away = False
        await seen.look()
        await seen.look()
        assert seen.directory.pins == [PinRow("queue://q", "queue://q", 0, 3)]

    run(main())


def test_a_broker_whose_name_another_one_has_does_not_go_on() -> None:
    async def work() -> None:
        seen = Seen()
        seen.directory.is_name_taken = True
        for _ in range(round((LEASE + RENEWAL) / LOOK)):
            await seen.look()
        assert seen.processes == []
        with pytest.raises(InvalidSettings, match=r"cluster\.name"):
            await seen.look()
        other = Seen()
        await other.serve()
        other.directory.is_name_taken = True
        with pytest.raises(InvalidSettings, match=r"cluster\.name"):
            await other.look(RENEWAL)

    run(work())


def test_a_broker_that_was_killed_joins_again_when_its_lease_has_ended() -> None:
    async def work() -> None:
        seen = Seen()
        seen.directory.is_name_taken = True
        for _ in range(round(LEASE / LOOK)):
            await seen.look()
        assert seen.processes == []
        seen.directory.is_name_taken = False
        await seen.look()
        assert sorted(process.shard for process in seen.processes if process.shard is not None) == [FRONT, 0, 1]

    run(work())


@pytest.mark.parametrize("asked", ["signal", "operator"])
def test_a_broker_that_leaves_stops_when_others_have_taken_its_shards(asked: str) -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        seen.directory.brokers["berlin"] = broker("berlin")
        if asked == "signal":
            seen.supervisor.leave()
        else:
            seen.directory.brokers["athens"] = seen.directory.brokers["athens"]._replace(leaving=True)
        await seen.look(RENEWAL)
        await seen.look(RENEWAL)
        assert seen.directory.brokers["athens"].leaving
        assert seen.shard_processes.running == [0, 1]
        seen.directory.brokers["berlin"] = broker("berlin", 0, 1)
        for shard in range(2):
            await seen.look()
            seen.end(shard)
            seen.directory.shards[shard] = ShardRow(shard, "berlin", 6, "b", "b", 1, 0.0)
        await seen.look()
        assert seen.shard_processes.is_ending

    run(work())


def test_a_broker_that_leaves_waits_for_others_only_so_long_and_not_if_there_are_none() -> None:
    async def work() -> None:
        alone, waiting, hurried = Seen(), Seen(), Seen()
        for seen in (alone, waiting, hurried):
            await seen.serve()
            if seen is not alone:
                seen.directory.brokers["berlin"] = broker("berlin")
            seen.supervisor.leave()
            await seen.look()
        assert (
            alone.shard_processes.is_ending,
            waiting.shard_processes.is_ending,
            hurried.shard_processes.is_ending,
        ) == (True, False, False)
        await waiting.look(HANDOVER_LIMIT)
        hurried.supervisor.leave()
        await hurried.look(0.0)
        assert waiting.shard_processes.is_ending
        assert hurried.shard_processes.is_ending

    run(work())


def test_a_broker_that_leaves_waits_so_long_for_each_of_its_shards() -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        seen.directory.brokers["berlin"] = broker("berlin", 0)
        seen.supervisor.leave()
        await seen.look(HANDOVER_LIMIT - 1)
        await seen.look()
        seen.end(0)
        seen.directory.shards[0] = ShardRow(0, "berlin", 6, "b", "b", 1, 0.0)
        await seen.look(HANDOVER_LIMIT - 1)
        assert not seen.shard_processes.is_ending
        await seen.look(HANDOVER_LIMIT / 2)
        await seen.look(HANDOVER_LIMIT / 2)
        assert seen.shard_processes.is_ending

    run(work())


def test_a_broker_that_is_told_twice_to_leave_waits_for_no_other_shard_although_one_has_just_gone() -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        seen.directory.brokers["berlin"] = broker("berlin")
        seen.supervisor.leave()
        await seen.look()
        seen.end(0)
        seen.supervisor.leave()
        await seen.look(0.0)
        assert seen.shard_processes.is_ending

    run(work())


def test_it_looks_more_often_while_clients_wait_for_a_shard() -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        await seen.look(RENEWAL)
        assert seen.supervisor.pause == LOOK
        seen.directory.brokers["berlin"] = broker("berlin", 0)
        await seen.look()
        assert seen.supervisor.pause == HURRY
        seen.directory.brokers["berlin"] = broker("berlin")
        seen.directory.shards[0] = seen.directory.shards[0]._replace(address="")
        await seen.look()
        assert seen.supervisor.pause == HURRY

    run(work())


def test_it_goes_on_looking_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        seen.directory.shards[0] = seen.directory.shards[0]._replace(address="")
        looked: list[int] = []

        def read() -> View:
            looked.append(1)
            if len(looked) == 3:
                seen.shard_processes.stop_rest()
                seen.end(0)
                seen.end(1)
            return View(dict(seen.directory.brokers), dict(seen.directory.shards), {})

        monkeypatch.setattr(seen.directory, "read", read)
        await asyncio.wait_for(seen.supervisor.run(), 30)
        assert len(looked) == 3

    monkeypatch.setattr(broker_process_module, "HURRY", 0.0)
    monkeypatch.setattr(broker_process_module, "LOOK", 60.0)
    run(work())


def test_at_its_end_it_is_gone_from_the_database() -> None:
    async def work() -> None:
        seen = Seen()
        await seen.serve()
        seen.supervisor.leave()
        running = asyncio.create_task(seen.supervisor.run())
        while not seen.shard_processes.is_ending:
            await asyncio.sleep(0)
        for shard in range(2):
            seen.end(shard)
        seen.supervisor.wake()
        await running
        assert seen.directory.brokers == {}
        assert seen.directory.withdrawn == [(0, 5), (1, 5)]

    run(work())
