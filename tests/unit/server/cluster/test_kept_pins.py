"""A placement key is given from shard to shard, and never at two: the shards' own stores say so."""

from collections.abc import Callable

import pytest

from quire.broker.transactions.xa import XaBranch
from quire.cluster.cluster_map import Pin
from quire.destination import queue
from quire.errors import DestinationExists, InvalidSettings, QuireError, ShardMoved
from quire.server.cluster.kept_pins import STEP
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import settings
from tests.unit.broker.xa import depths, send_in, start

Give = Callable[[str, int], list[QuireError | None]]


@pytest.fixture
def cluster() -> SteppedCluster:
    """A cluster of three shards."""
    return SteppedCluster(3)


@pytest.fixture
def give(cluster: SteppedCluster) -> Give:
    """Has the shard that has a queue give it to another one: how that ended, once it has."""

    def given(name: str, shard: int) -> list[QuireError | None]:
        ends: list[QuireError | None] = []
        cluster.owner(name).pins.give(queue(name), shard, ends.append)
        return ends

    return given


def queues(cluster: SteppedCluster, name: str) -> list[int]:
    """The shards where there is a queue of a name."""
    return [shard for shard, member in cluster.members.items() if name in member.broker.queues]


def test_what_is_given_away_is_at_the_other_shard_once_all_have_heard_of_it(
    cluster: SteppedCluster, give: Give
) -> None:
    name = cluster.name_at(1)
    ends = give(name, 2)
    cluster.run()
    assert ends == [None]
    late = cluster.connect(0)
    late.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert late.errors() == ["shard-moved"]  # its entry has not heard of it, and the shard that had it refuses
    assert queues(cluster, name) == []
    cluster.publish()
    client = cluster.connect(0)
    client.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert client.receipts() == ["r"]
    assert queues(cluster, name) == [2]


def test_a_key_is_given_back_and_forth(cluster: SteppedCluster, give: Give) -> None:
    name = cluster.name_at(1)
    client = cluster.connect(0)
    for shard in (2, 0, 1, 2):
        ends = give(name, shard)
        cluster.run()
        cluster.publish()
        assert ends == [None]
        assert {member.cluster_map.shard_of(queue(name)) for member in cluster.members.values()} == {shard}
        client.send(name, b"m", {"receipt": f"{shard}"})
        cluster.run()
        assert queues(cluster, name) == [shard]
        cluster.members[shard].broker.destinations.delete_queue(cluster.members[shard].queue(name))
        cluster.run()
    assert client.receipts() == ["2", "0", "1", "2"]


def test_a_later_owner_knows_what_was_given_away_although_the_database_does_not(
    cluster: SteppedCluster, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = cluster.name_at(1)
    monkeypatch.setattr(cluster, "publish_pin", lambda row: None)
    ends = give(name, 2)
    cluster.run()
    monkeypatch.undo()
    cluster.kill(1)
    cluster.start(1)  # it tells the database again
    assert ends == [None]
    assert cluster.members[1].cluster_map.newest_pin(f"queue://{name}") == Pin(2, 1)
    client = cluster.connect(0)
    client.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert queues(cluster, name) == ([2] if client.receipts() else [])
    cluster.publish()
    again = cluster.connect(0)
    again.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert again.receipts() == ["r"]
    assert queues(cluster, name) == [2]


def test_a_later_owner_knows_what_the_shard_was_given_although_it_sees_an_older_map(
    cluster: SteppedCluster, give: Give
) -> None:
    name = cluster.name_at(1)
    give(name, 2)
    cluster.run()
    cluster.publish()
    client = cluster.connect(2)
    client.send(name, b"m", {"receipt": "r"})
    cluster.run()
    cluster.kill(2)
    member = cluster._start(2)  # it has heard nothing of the database yet
    assert member.cluster_map.is_own(queue(name))
    assert member.queue(name).depth == 1


def test_what_exists_is_not_given_away(cluster: SteppedCluster, give: Give) -> None:
    name = cluster.name_at(1)
    cluster.members[1].queue(name)
    ends = give(name, 2)
    cluster.run()
    assert isinstance(ends[0], DestinationExists)
    assert cluster.shard_of(name) == 1


def test_what_is_made_while_the_shard_looks_for_it_is_not_given_away(cluster: SteppedCluster, give: Give) -> None:
    names = [name for n in range(3 * STEP * 3) if cluster.shard_of(name := f"n{n}") == 1]
    for name in names[1:]:
        cluster.members[1].queue(name)
    cluster.run()
    steps = cluster.members[1].pins._given(queue(names[0]), 2, (ends := list[QuireError | None]()).append)
    next(steps)
    cluster.members[1].queue(names[0])
    assert list(steps) is not None
    assert isinstance(ends[0], DestinationExists)
    assert cluster.members[1].broker.destinations.created == {}
    assert cluster.shard_of(names[0]) == 1


def held_send(cluster: SteppedCluster, name: str) -> XaBranch:
    """A transaction at shard 1 that sends to a queue, which is gone again."""
    member = cluster.members[1]
    branch = start(member)
    send_in(member, branch, f"/queue/{name}", b"m")
    branch.end()
    member.broker.destinations.delete_queue(member.queue(name))
    cluster.run()
    return branch


def test_what_a_prepared_transaction_sends_to_is_not_given_away(cluster: SteppedCluster, give: Give) -> None:
    name = cluster.name_at(1)
    branch = held_send(cluster, name)
    branch.prepare()
    cluster.run()
    (ends, other) = (give(name, 2), give(cluster.name_at(1, "other"), 2))
    cluster.run()
    assert [type(end) for end in ends] == [DestinationExists]
    assert other == [None]
    branch.commit()
    cluster.run()
    assert depths(cluster.members[1]) == {name: 1}


def test_a_transaction_that_sends_to_what_was_given_away_is_not_prepared(cluster: SteppedCluster, give: Give) -> None:
    name = cluster.name_at(1)
    branch = held_send(cluster, name)
    ends = give(name, 2)
    cluster.run()
    assert ends == [None]
    with pytest.raises(ShardMoved):
        branch.prepare()
    assert not branch.is_prepared


def test_what_is_being_given_to_one_shard_is_not_given_to_another(cluster: SteppedCluster, give: Give) -> None:
    name = cluster.name_at(1)
    first, second = give(name, 2), give(name, 0)
    cluster.run()
    assert first == [None]
    assert isinstance(second[0], ShardMoved)
    assert cluster._pins == {f"queue://{name}": Pin(2, 1)}


def test_a_message_that_is_due_after_its_destination_was_given_away_is_a_dead_letter(
    cluster: SteppedCluster, give: Give
) -> None:
    name = cluster.name_at(1)
    client = cluster.connect(1)
    client.send(name, b"m", {"AMQ_SCHEDULED_DELAY": "2000"})
    cluster.run()
    member = cluster.members[1]
    member.broker.destinations.delete_queue(member.queue(name))
    ends = give(name, 2)
    cluster.run()
    cluster.publish()
    cluster.advance(3)
    assert ends == [None]
    assert queues(cluster, name) == []
    assert member.queue("ActiveMQ.DLQ").depth == 1


def test_a_shard_does_not_start_with_settings_that_place_what_it_has_elsewhere(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    cluster.members[1].queue(name)
    cluster.run()
    other = next(other for n in range(100) if cluster.shard_of(other := f"c{n}") == 2 and other < name)
    for shard in (1, 2):
        cluster.kill(shard)
    cluster._settings = settings(
        composites=[{"queue": other, "forward_to": [f"queue://{name}"]}]
    )  # fmt: skip
    with pytest.raises(InvalidSettings, match=name):
        cluster.start(1)
    cluster.start(2)
