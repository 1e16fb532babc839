"""Brokers that follow their plans come to an even state, whatever the order, and give up no shard before its time."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cluster.cluster_map import BrokerRow, ShardRow, View
from quire.cluster.plan import ShardState, plan

SHARDS = 6
NAMES = ["athens", "berlin", "cairo", "delhi"]


class Brokers:
    """Brokers that follow their plans on one database; a store's lock goes to one that waits for it."""

    def __init__(self) -> None:
        self.own: dict[str, dict[int, ShardState]] = {}
        self.rows: dict[int, ShardRow] = {}
        self.leaving = set[str]()
        self.locks: dict[int, str] = {}
        self.stops = 0
        self._epochs = count(1)

    def view(self) -> View:
        rows = {}
        for name, own in self.own.items():
            waiting = frozenset(shard for shard, state in own.items() if state is ShardState.WAITING)
            rows[name] = BrokerRow(name, "run", "", "", "", "", "", waiting, name in self.leaving)
        return View(rows, dict(self.rows), {})

    def step(self, name: str) -> bool:
        """One broker looks, acts, and its processes go on; whether anything happened."""
        own = self.own[name]
        before = (dict(own), dict(self.locks), dict(self.rows))
        todo = plan(self.view(), SHARDS, name, own)
        for shard in todo.start:
            own[shard] = ShardState.WAITING
        for shard in todo.stop:
            if own[shard] is ShardState.RUNNING:
                self.stops += 1
                del self.locks[shard]
            del own[shard]
        for shard, state in own.items():
            if state is ShardState.WAITING and shard not in self.locks:
                own[shard], self.locks[shard] = ShardState.RUNNING, name
                self.rows[shard] = ShardRow(shard, name, next(self._epochs), "address", "", 1, 0.0)
        return before != (own, self.locks, self.rows)

    def settle(self) -> None:
        """Until no broker has anything to do."""
        for _ in range(200):
            if not any([self.step(name) for name in sorted(self.own)]):
                return
        raise AssertionError("the brokers never come to an end")

    def kill(self, name: str) -> None:
        del self.own[name]
        self.leaving.discard(name)
        self.locks = {shard: owner for shard, owner in self.locks.items() if owner != name}

    def loads(self) -> Counter[str]:
        return Counter({name: sum(owner == name for owner in self.locks.values()) for name in self.own})


@pytest.mark.slow
@given(st.data())
def test_after_any_history_every_shard_has_one_owner_and_brokers_have_equal_parts(data: st.DataObject) -> None:
    brokers = Brokers()
    brokers.own["athens"] = {}
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["step", "step", "step", "join", "kill", "leave"])):
            case "step":
                brokers.step(data.draw(st.sampled_from(sorted(brokers.own))))
            case "join":
                brokers.own.setdefault(data.draw(st.sampled_from(NAMES)), {})
            case "kill" if len(brokers.own) > 1:
                brokers.kill(data.draw(st.sampled_from(sorted(brokers.own))))
            case "leave" if len(brokers.own.keys() - brokers.leaving) > 1:
                brokers.leaving.add(data.draw(st.sampled_from(sorted(brokers.own.keys() - brokers.leaving))))
    if not brokers.own.keys() - brokers.leaving:
        brokers.leaving.clear()
    brokers.settle()
    assert sorted(brokers.locks) == list(range(SHARDS))
    loads = brokers.loads()
    staying = [loads[name] for name in brokers.own if name not in brokers.leaving]
    assert max(staying) - min(staying) <= 1
    assert all(loads[name] == 0 for name in brokers.leaving)


def test_a_shard_is_given_up_only_when_its_new_owner_stands_by() -> None:
    brokers = Brokers()
    brokers.own["athens"] = {}
    brokers.settle()
    brokers.own["berlin"] = {}
    assert not brokers.step("athens")
    brokers.step("berlin")
    assert brokers.locks == dict.fromkeys(range(SHARDS), "athens")
    brokers.step("athens")
    assert brokers.stops == 1


def test_one_shard_at_a_time_is_given_up() -> None:
    running = {shard: ShardState.RUNNING for shard in range(SHARDS)}
    rows = {shard: ShardRow(shard, "athens", 1, "a", "", 1, 0.0) for shard in range(SHARDS)}
    berlin = BrokerRow("berlin", "run", "", "", "", "", "", frozenset(range(SHARDS)))
    view = View({"athens": BrokerRow("athens", "run", "", "", "", "", ""), "berlin": berlin}, rows)
    assert plan(view, SHARDS, "athens", running).stop == [3]
    assert plan(view, SHARDS, "athens", running | {3: ShardState.STOPPING}).stop == []
    del running[3]  # its process has ended, and the new owner has not said yet that it runs
    assert plan(view, SHARDS, "athens", running).stop == []
    rows[3] = rows[3]._replace(address="")
    assert plan(view, SHARDS, "athens", running).stop == []
    rows[3] = rows[3]._replace(broker="berlin", address="b")
    assert plan(view, SHARDS, "athens", running).stop == [4]
    del running[0]  # it has died, and is started here again
    assert plan(view, SHARDS, "athens", running) == ([0], [4])


def test_the_last_broker_keeps_its_shards_although_it_leaves() -> None:
    view = View({"athens": BrokerRow("athens", "run", "", "", "", "", "", frozenset(), True)})
    assert plan(view, SHARDS, "athens", {0: ShardState.RUNNING}) == ([], [])


def test_a_new_broker_takes_only_its_part() -> None:
    brokers = Brokers()
    for name in NAMES[:2]:
        brokers.own[name] = {}
    brokers.settle()
    brokers.own["cairo"] = {}
    brokers.stops = 0
    brokers.settle()
    assert brokers.stops == 2
