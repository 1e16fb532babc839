"""A broker's processes: started for the shards that it should have, and stopped when others stand by for them."""

import pytest

from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, BrokerRow, Pin, PinRow, ShardRow, View
from quire.server.cluster.broker_process import FIRST_PAUSE, LONGEST_PAUSE, ShardProcesses
from quire.server.cluster.shard_process import Child, Map, Running, Waiting


class FakeProcess(Child):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.shard: int | None = None
        self.maps: list[Map] = []
        self.is_stopped = False
        self.reloads = 0

    def serve(self, shard: int) -> None:
        self.shard = shard

    def tell_map(self, map: Map) -> None:
        self.maps.append(map)

    def reload(self) -> None:
        self.reloads += 1

    def stop(self) -> None:
        self.is_stopped = True


class Seen:
    """A broker of three shards, its processes, and what the database has."""

    def __init__(self, *, has_front: bool = True) -> None:
        self.clock = ManualClock()
        self.processes: list[FakeProcess] = []
        self.shard_processes = ShardProcesses("athens", 3, self.clock, self._spawn, has_front=has_front)
        self.brokers = {"athens": broker("athens")}
        self.rows: dict[int, ShardRow] = {}

    def _spawn(self) -> FakeProcess:
        self.processes.append(FakeProcess())
        return self.processes[-1]

    def look(self) -> None:
        for row in self.shard_processes.to_announce():
            self.shard_processes.announced(row, accepted=True)
            self.rows[row.shard] = row
        self.shard_processes.take(
            View(dict(self.brokers), dict(self.rows), {"queue://q": PinRow("queue://q", "queue://q", 1, 1)})
        )

    def of(self, shard: int) -> FakeProcess:
        return next(process for process in reversed(self.processes) if process.shard == shard)

    def wait(self, shard: int) -> None:
        self.shard_processes.reported(self.of(shard), Waiting())

    def run(self, shard: int, epoch: int = 1) -> None:
        self.shard_processes.reported(self.of(shard), Running(100 + shard, f"link:{shard}", f"http:{shard}", epoch))


def broker(name: str, *standing_by: int, leaving: bool = False) -> BrokerRow:
    return BrokerRow(name, "run", "s", "o", "h", "", "", frozenset(standing_by), leaving)


@pytest.fixture
def seen() -> Seen:
    seen = Seen()
    seen.look()
    return seen


@pytest.fixture
def serving(seen: Seen) -> Seen:
    """One that runs all three shards, and has announced them."""
    for shard in range(3):
        seen.run(shard)
    seen.shard_processes.ended(seen.of(FRONT))
    seen.look()
    return seen


def test_a_process_stands_by_when_it_says_so_since_its_start_takes_a_while(seen: Seen) -> None:
    assert seen.shard_processes.standing_by == set()
    seen.wait(1)
    assert seen.shard_processes.standing_by == {1}
    seen.run(1)
    assert seen.shard_processes.standing_by == set()


def test_a_lone_broker_waits_for_all_shards_and_serves_clients_meanwhile(seen: Seen) -> None:
    assert sorted([process.shard for process in seen.processes if process.shard is not None]) == [FRONT, 0, 1, 2]
    for shard in (0, 1, 2):
        seen.wait(shard)
    assert seen.shard_processes.standing_by == {0, 1, 2}
    seen.run(FRONT, 0)
    assert seen.shard_processes.standing_by == {0, 1, 2}
    assert seen.shard_processes.to_announce() == []


def test_a_shard_that_runs_is_announced_once_and_the_front_goes(seen: Seen) -> None:
    seen.run(FRONT, 0)
    seen.run(1, 7)
    assert seen.of(FRONT).is_stopped
    assert seen.shard_processes.to_announce() == [ShardRow(1, "athens", 7, "link:1", "http:1", 101, 0.0)]
    seen.look()
    assert seen.shard_processes.to_announce() == []
    assert seen.shard_processes.running == [1]


def test_every_process_is_told_the_map_when_it_changes_and_when_it_starts(seen: Seen) -> None:
    seen.run(1, 7)
    seen.look()
    last = seen.of(2).maps[-1]
    assert {shard: (peer.address, peer.epoch, peer.http) for shard, peer in last.peers.items()} == {
        1: ("link:1", 7, "http:1")
    }
    assert last.pins == {"queue://q": Pin(1, 1)}
    assert [living.name for living in last.brokers] == ["athens"]
    told = len(seen.of(2).maps)
    seen.look()
    assert len(seen.of(2).maps) == told
    seen.shard_processes.ended(seen.of(1))
    seen.clock.advance(FIRST_PAUSE)
    seen.look()
    assert seen.of(1).maps[0] == last


def test_a_shard_is_given_up_when_another_broker_stands_by_for_it(serving: Seen) -> None:
    serving.brokers["berlin"] = broker("berlin")
    serving.look()
    assert not any(serving.of(shard).is_stopped for shard in range(3))
    serving.brokers["berlin"] = broker("berlin", 2)
    serving.look()
    assert [serving.of(shard).is_stopped for shard in range(3)] == [False, False, True]
    serving.shard_processes.ended(serving.of(2))
    assert serving.shard_processes.to_withdraw() == [(2, 1)]
    serving.shard_processes.withdrawn(2, 1)
    assert serving.shard_processes.to_withdraw() == []
    serving.rows[2] = ShardRow(2, "berlin", 2, "b", "b", 1, 0.0)
    serving.look()
    assert serving.shard_processes.running == [0, 1]


def test_a_process_that_ends_by_itself_is_started_again_after_a_pause_that_grows(serving: Seen) -> None:
    started = len(serving.processes)
    serving.shard_processes.ended(serving.of(0))
    serving.look()
    assert len(serving.processes) == started
    pauses = []
    for _ in range(8):
        waited = 0.0
        while len(serving.processes) == started:
            serving.clock.advance(FIRST_PAUSE)
            waited += FIRST_PAUSE
            serving.look()
        pauses.append(waited)
        started = len(serving.processes)
        serving.shard_processes.ended(serving.processes[-1])
    assert pauses == sorted(pauses)
    assert pauses[0] == FIRST_PAUSE
    assert pauses[-1] == LONGEST_PAUSE


def test_an_owner_that_the_database_knows_to_be_late_stops(serving: Seen) -> None:
    serving.shard_processes.ended(serving.of(0))
    serving.clock.advance(FIRST_PAUSE)
    serving.look()
    serving.run(0, 3)
    (row,) = serving.shard_processes.to_announce()
    serving.shard_processes.announced(row, accepted=False)
    assert serving.of(0).is_stopped


def test_an_owner_announces_itself_again_when_one_before_it_has_overwritten_its_row(serving: Seen) -> None:
    serving.shard_processes.ended(serving.of(0))
    serving.clock.advance(FIRST_PAUSE)
    serving.look()
    serving.run(0, 3)
    serving.look()
    serving.rows[0] = ShardRow(0, "berlin", 2, "b", "b", 1, 0.0)
    serving.look()
    assert [row.shard for row in serving.shard_processes.to_announce()] == [0]


def test_without_a_shard_a_front_serves_clients_and_is_started_again(serving: Seen) -> None:
    serving.brokers["berlin"] = broker("berlin", 0, 1, 2)
    serving.rows = {shard: row._replace(preferred="berlin") for shard, row in serving.rows.items()}
    old = serving.of(FRONT)
    for shard in range(2):
        serving.look()
        serving.shard_processes.ended(serving.of(shard))
        serving.rows[shard] = ShardRow(shard, "berlin", 2, "b", "b", 1, 0.0, "berlin")
    serving.look()
    front = serving.of(FRONT)
    assert front is not old
    serving.look()
    assert not serving.of(2).is_stopped  # not before the front serves clients
    serving.run(FRONT, 0)
    serving.look()
    assert serving.of(2).is_stopped
    assert not front.is_stopped
    serving.shard_processes.ended(serving.of(2))
    serving.rows[2] = ShardRow(2, "berlin", 2, "b", "b", 1, 0.0, "berlin")
    serving.look()
    serving.shard_processes.ended(front)
    serving.look()
    assert serving.of(FRONT) is front
    serving.clock.advance(FIRST_PAUSE)
    serving.look()
    assert serving.of(FRONT) is not front


def test_a_shard_that_is_waited_for_in_vain_is_left_at_once_although_the_last_one_waits_for_a_front(seen: Seen) -> None:
    seen.run(0)
    seen.look()
    seen.brokers["berlin"] = broker("berlin", 0, 1, 2)
    seen.rows[0] = seen.rows[0]._replace(preferred="berlin")
    for shard in (1, 2):
        seen.rows[shard] = ShardRow(shard, "berlin", 2, "b", "b", 1, 0.0, "berlin")
    seen.shard_processes.ended(seen.of(FRONT))
    seen.look()
    assert [seen.of(shard).is_stopped for shard in range(3)] == [False, True, True]


def test_a_broker_that_leaves_starts_no_front(serving: Seen) -> None:
    serving.brokers["athens"] = broker("athens", leaving=True)
    serving.brokers["berlin"] = broker("berlin", 0, 1, 2)
    old = serving.of(FRONT)
    for shard in range(3):
        serving.look()
        assert serving.of(shard).is_stopped
        serving.shard_processes.ended(serving.of(shard))
        serving.rows[shard] = ShardRow(shard, "berlin", 2, "b", "b", 1, 0.0)
    serving.look()
    assert serving.of(FRONT) is old


def test_at_the_end_all_stop_and_none_is_started(serving: Seen) -> None:
    serving.shard_processes.stop_rest()
    assert all(serving.of(shard).is_stopped for shard in range(3))
    for shard in range(3):
        serving.shard_processes.ended(serving.of(shard))
    started = len(serving.processes)
    serving.look()
    assert len(serving.processes) == started
    assert serving.shard_processes.is_empty
    assert serving.shard_processes.to_withdraw() == [(0, 1), (1, 1), (2, 1)]


def test_a_reload_reaches_all(serving: Seen) -> None:
    serving.shard_processes.reload()
    assert [serving.of(shard).reloads for shard in range(3)] == [1, 1, 1]


def test_a_broker_that_has_all_shards_needs_no_process_without_one() -> None:
    seen = Seen(has_front=False)
    seen.look()
    assert {process.shard for process in seen.processes} == {0, 1, 2}
    assert len(seen.processes) == 3
