"""A client's session in a cluster: whatever shard has what it uses, it is told the same."""

from collections.abc import Callable

import pytest

from quire.broker.routing.addresses import Address, Scope
from quire.broker.transactions.decisions import Xid
from quire.cluster import remote_session
from quire.destination import DestinationKind, queue
from quire.errors import QuireError, ShardMoved, ShardUnavailable
from quire.sessions.base import (
    ACCEPTED,
    DELIVERED,
    PREPARED,
    ConsumerKind,
    Leaving,
    LeavingKind,
    Sending,
    Step,
    These,
    Traits,
    UpTo,
)
from quire.sessions.transactions import branch_tx
from quire.settings import Settings
from quire.settings.keys import StoreSettings
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.server.cluster.toy_clients import CLIENT, INDIVIDUAL, ToyDoor, connect

CLEAN = Leaving(LeavingKind.CLEAN, "it went")


@pytest.fixture
def cluster() -> SteppedCluster:
    """A cluster of three shards, whose links are cut into pieces."""
    return SteppedCluster(3, piece=997)


def depth(cluster: SteppedCluster, name: str) -> int:
    return cluster.owner(name).queue(name).depth


def names(cluster: SteppedCluster) -> list[str]:
    return [cluster.name_at(shard) for shard in range(3)]


# One shard.


def test_messages_to_another_shard_are_stored_there_and_confirmed(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    assert client.send(f"/queue/{name}", b"one", b"two", token=b"t")
    assert client.tokens == [b"open"]
    cluster.run()
    assert client.tokens == [b"open", b"t"]
    assert depth(cluster, name) == 2
    consumer = client.subscribe(f"/queue/{name}", b"s")
    cluster.run()
    assert client.said[2:] == [("part", 0), ("confirmed", b"s"), ("deliver", 0, [b"one", b"two"], False)]
    (part,) = consumer.parts
    assert consumer.only_part is part
    assert part.acknowledge([message.sequence for _, message in client.got]) == []
    cluster.run()
    assert depth(cluster, name) == 0


def test_tokens_of_a_run_come_back_once_and_in_their_order(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    route = client.route(f"/queue/{cluster.name_at(1)}")
    client.session.takes_input()
    for number in range(300):
        route.target.send(b"message-id:1\ntimestamp:1\n\n%d" % number)
        if number % 3 == 0:
            route.receipts.append(b"%d" % number)
    route.receipts.append(b"and another one")
    client.session.took_input(False)
    cluster.run()
    assert client.tokens == [b"open", *[b"%d" % number for number in range(0, 300, 3)], b"and another one"]


def test_what_a_message_is_sent_with_comes_to_its_consumer(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = f"/queue/{cluster.name_at(1)}"
    ever = cluster.clock.now_ms() + 1_000_000
    for how in (Sending(), Sending(ever, 7, False), Sending(0, 2), Sending(ever)):
        client.send(name, b"m", how=how)
    client.send(name, b"m", b"m", how=Sending(producer="p", producer_sequence=1))  # one is a repetition
    client.subscribe(name)
    cluster.run()
    states = [(m.expiration, m.priority, m.persistent) for _, m in client.got]
    assert sorted(states) == sorted([(0, 4, True), (ever, 7, False), (0, 2, True), (ever, 4, True), (0, 4, True)])


@pytest.mark.slow
def test_routes_that_are_forgotten_at_the_owner_are_told_again(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    named = [f"/queue/{name}" for n in range(4000) if cluster.shard_of(name := f"r{n}") == 1][:1100]
    routes = [client.route(name) for name in named]
    for _ in range(2):
        for route in routes:
            client.session.accept(route, b"message-id:1\ntimestamp:1\n\n")
        client.session.took_input(False)
        cluster.run()
    assert all(depth(cluster, name.removeprefix("/queue/")) == 2 for name in named)


def test_a_route_that_is_refused_fails_each_of_its_tokens(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    route = client.route(f"/stream/{cluster.name_at(1, 'stream://s')[9:]}", Traits(partition="99", by_content=False))
    for token in (b"a", None, b"b"):
        client.session.accept(route, b"message-id:1\ntimestamp:1\n\n", token=token)
    client.session.took_input(False)
    cluster.run()
    assert {token for token, _ in client.errors} == {b"a", b"b", None}
    assert client.over is None


def test_a_message_that_is_not_in_flight_is_told_later(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    client.send(f"/queue/{name}", b"1")
    consumer = client.subscribe(f"/queue/{name}")
    cluster.run()
    (part,) = consumer.parts
    part.acknowledge([77])
    client.session.settle(UpTo(part, None, 78), ACCEPTED, token=b"t")
    cluster.run()
    assert [(token, error.code) for token, error in client.errors] == [
        (None, "unknown-message"),
        (b"t", "unknown-message"),
    ]


def test_a_session_that_leaves_is_told_when_its_shards_have_done_all(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    client.send(f"/queue/{name}", b"1")
    client.session.leave(CLEAN, b"bye")
    assert b"bye" not in client.tokens
    cluster.run()
    assert client.tokens[-1] == b"bye"
    assert depth(cluster, name) == 1
    assert [len(member.virtual_clients._connections) for member in cluster.members.values()] == [1, 0, 0]


# Temporary destinations.


def test_what_follows_a_temporary_destination_waits_until_its_shard_has_it(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = next(name for n in range(99) if cluster.shard_of(name := f"ID:x-{n}") == 1)
    address = client.session.temporary(DestinationKind.QUEUE, name, b"made")
    assert client.session.is_awaited
    assert client.session.restricted
    route = client.route(f"/queue/{cluster.name_at(2)}")
    assert not client.session.accept(route, b"message-id:1\ntimestamp:1\n\n")
    assert not client.session.begin(b"l1")
    consumer = client.subscribe(str(address), b"s")
    cluster.run()
    assert sorted(client.tokens) == [b"made", b"open", b"s"]
    assert client.goes_on
    assert client.session.accept(route, b"message-id:1\ntimestamp:1\n\n")
    other = connect(cluster, cluster.members[2])
    other.send(f"/remote-temp-queue/{name}", b"answer")
    cluster.run()
    assert client.bodies == [b"answer"]
    client.session.unsubscribe(consumer)
    client.session.call("drop-temporary", (Address(DestinationKind.QUEUE, name, Scope.REMOTE),), b"gone")
    cluster.run()
    assert client.tokens[-1] == b"gone"
    assert name not in cluster.members[1].broker.routing.temporaries.queues


def test_a_front_makes_temporary_destinations_anywhere() -> None:
    cluster = SteppedCluster(3, fronts=1)
    client = connect(cluster, cluster.fronts[0])
    address = client.session.temporary(DestinationKind.QUEUE)
    cluster.run()
    client.subscribe(str(address))
    connect(cluster, cluster.members[0]).send(str(address), b"answer")
    cluster.run()
    assert client.bodies == [b"answer"]
    client.vanish()
    cluster.run()
    assert not any(member.broker.routing.temporaries.queues for member in cluster.members.values())


# Several shards.


def test_a_message_to_a_list_comes_to_each_shard_and_its_token_when_all_have_it(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    text = ",".join([f"/queue/{name}" for name in names(cluster)])
    client.send(text, b"one", token=b"t")
    cluster.run()
    assert client.tokens == [b"open", b"t"]
    assert [depth(cluster, name) for name in names(cluster)] == [1, 1, 1]
    client.subscribe(f"/queue/{names(cluster)[1]}")
    cluster.run()
    assert client.got[0][1].header(b"original-destination") == text


def test_a_consumer_of_a_pattern_is_one_at_all_shards(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    for name in names(cluster):
        client.send(f"/queue/{name}", b"1", b"2")
    cluster.run()
    consumer = client.subscribe("/queue/>", b"s", ack=CLIENT)
    cluster.run()
    assert client.tokens[-1] == b"s"
    assert len(consumer.parts) == 3
    assert {part.consumer for part in consumer.parts} == {consumer}
    assert [*client.session.parts.values()] == [*consumer.parts]
    assert sorted(client.bodies) == [b"1", b"1", b"1", b"2", b"2", b"2"]
    part, last = client.got[4]
    client.session.settle(UpTo(part, None, last.sequence), ACCEPTED, token=b"ack")
    cluster.run()
    assert client.tokens[-1] == b"ack"
    assert sum([depth(cluster, name) for name in names(cluster)]) == 1
    part, last = client.got[5]
    part.acknowledge([last.sequence])
    cluster.run()
    assert sum([depth(cluster, name) for name in names(cluster)]) == 0
    client.session.unsubscribe(consumer, token=b"u")
    cluster.run()
    assert client.tokens[-1] == b"u"
    assert client.session.parts == {}


def test_one_prefetch_is_that_of_all_shards(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = names(cluster)[1]
    client.send(f"/queue/{name}", *[b"%d" % n for n in range(30)])
    client.subscribe("/queue/>", prefetch=9)
    cluster.run()
    assert len(client.got) == 9
    for part, message in list(client.got):
        part.acknowledge([message.sequence])
    cluster.run()
    assert len(client.got) == 18


def test_a_pull_over_shards_finds_what_there_is_and_waits_for_more(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    first, second, third = names(cluster)
    consumer = client.subscribe(",".join([f"/queue/{name}" for name in names(cluster)]), prefetch=0)
    client.send(f"/queue/{second}", b"1", b"2")
    cluster.run()
    assert client.got == []
    client.session.pull(consumer, 1, -1)
    cluster.run()
    assert (client.bodies, client.said[-1]) == ([b"1"], ("pull", 0))
    client.session.pull(consumer, 3, 0)
    cluster.run()
    assert client.bodies == [b"1", b"2"]
    client.send(f"/queue/{third}", b"3")
    cluster.run()
    assert client.bodies == [b"1", b"2", b"3"]
    client.send(f"/queue/{first}", b"4", b"5")
    cluster.run()
    assert (client.bodies, client.said[-1]) == ([b"1", b"2", b"3", b"4"], ("pull", 0))
    client.session.pull(consumer, 5, -1)
    cluster.run()
    assert (client.bodies[4:], client.said[-1]) == ([b"5"], ("pull", 4))


def test_a_pull_with_a_time_ends_when_it_is_up(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    consumer = client.subscribe(",".join([f"/queue/{name}" for name in names(cluster)]), prefetch=0)
    cluster.run()
    client.session.pull(consumer, 1, 2000)
    cluster.run()
    cluster.advance(1.5)
    assert ("pull", 1) not in client.said
    cluster.advance(1.0)
    assert client.said[-1] == ("pull", 1)


def test_a_browser_of_what_is_spread_ends_when_all_shards_have_ended(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    for member in cluster.members.values():
        member.queue("ActiveMQ.DLQ").send(b"message-id:1\ntimestamp:1\n\nletter")
    cluster.run()
    consumer = client.subscribe("/queue/ActiveMQ.DLQ", kind=ConsumerKind.BROWSER)
    cluster.run()
    assert client.bodies == [b"letter"] * 3
    assert [said for said in client.said if said[0] == "browsed"] == [("browsed", 0)]
    client.session.unsubscribe(consumer)
    cluster.run()
    assert sum([member.queue("ActiveMQ.DLQ").depth for member in cluster.members.values()]) == 3


def test_a_consumer_that_one_shard_refuses_leaves_the_others(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    cluster.members[2].broker.core.limits.max_destinations = 0
    consumer = client.subscribe(",".join([f"/queue/{name}" for name in names(cluster)]), b"s")
    cluster.run()
    assert [(token, error.code) for token, error in client.errors] == [(b"s", "too-many-destinations")]
    assert consumer.parts == []
    assert client.session.parts == {}


def test_durable_subscriptions_are_known_by_name_in_the_cluster(cluster: SteppedCluster) -> None:
    topics = [
        next(t for n in range(99) if cluster.shard_of(f"topic://{(t := f't{n}')}") == shard) for shard in range(3)
    ]
    client = connect(cluster, cluster.members[0], "me")
    consumer = client.subscribe(f"/topic/{topics[1]}", b"1", kind=ConsumerKind.DURABLE, name="n")
    cluster.run()
    assert client.tokens[-1] == b"1"
    second = client.subscribe(f"/topic/{topics[2]}", b"2", kind=ConsumerKind.DURABLE, name="n")
    cluster.run()
    assert client.errors[-1][1].code == "destination-in-use"
    assert cluster.members[2].broker.durables.find("me", "n") is None
    assert not {part.number for part in second.parts} & client.session.parts.keys()
    client.session.unsubscribe(consumer)
    client.subscribe(f"/topic/{topics[0]}", b"3", kind=ConsumerKind.DURABLE, name="n")
    cluster.run()
    assert client.tokens[-1] == b"3"
    assert cluster.members[1].broker.durables.find("me", "n") is None
    client.session.leave(CLEAN, b"bye")
    cluster.run()
    again = connect(cluster, cluster.members[2], "me")
    again.session.call("remove-durable", ("me", "n"), b"removed")
    cluster.run()
    assert again.tokens[-1] == b"removed"
    again.session.call("remove-durable", ("me", "n"), b"again")
    cluster.run()
    assert [(token, error.code) for token, error in again.errors] == [(b"again", "unknown-subscription")]


def test_destinations_are_created_and_deleted_where_they_are(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    addresses = [Address(DestinationKind.QUEUE, name) for name in names(cluster)]
    for address in addresses:
        assert client.session.call("create", (address,), b"made")
    cluster.run()
    assert client.tokens == [b"open", b"made", b"made", b"made"]
    while not client.session.call("delete", (addresses,), b"deleted"):
        cluster.run()
    cluster.run()
    assert client.tokens[-1] == b"deleted"
    assert [a.name in cluster.owner(a.name).broker.destinations.queues for a in addresses] == [False] * 3


# Transactions.


def end(cluster: SteppedCluster, client: ToyDoor, tx: bytes, step: Step, token: bytes) -> None:
    """Take a transaction a step further, as often as it has to wait."""
    while not client.session.end(tx, step, token):
        assert client.over is None
        cluster.run()
    cluster.run()


@pytest.mark.parametrize("shards", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
def test_a_transaction_is_committed_at_all_of_its_shards_or_at_none(
    cluster: SteppedCluster, shards: tuple[int, ...]
) -> None:
    client = connect(cluster, cluster.members[0])
    for tx, step, expected in ((b"l1", Step.ROLLBACK, 0), (b"l2", Step.COMMIT, 2)):
        assert client.session.begin(tx, b"begun")
        for shard in shards:
            client.send(f"/queue/{cluster.name_at(shard)}", b"1", b"2", tx=tx)
        cluster.run()
        assert [depth(cluster, cluster.name_at(shard)) for shard in shards] == [0] * len(shards)
        end(cluster, client, tx, step, b"end" + tx)
        assert client.tokens[-1] == b"end" + tx
        assert [depth(cluster, cluster.name_at(shard)) for shard in shards] == [expected] * len(shards)


def test_what_a_transaction_acknowledges_is_done_with_its_commit(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    source, target = cluster.name_at(1), cluster.name_at(2)
    client.send(f"/queue/{source}", b"1", b"2")
    client.subscribe(f"/queue/{source}")
    cluster.run()
    client.session.begin(b"l1")
    part = client.got[0][0]
    assert client.session.settle(These(part, [m.sequence for _, m in client.got]), ACCEPTED, tx=b"l1", token=b"ack")
    client.send(f"/queue/{target}", b"result", tx=b"l1")
    end(cluster, client, b"l1", Step.COMMIT, b"done")
    assert client.tokens[-1] == b"done"
    assert [depth(cluster, source), depth(cluster, target)] == [0, 1]


def test_a_consumer_of_several_shards_keeps_what_a_rollback_keeps(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    for name in names(cluster):
        client.send(f"/queue/{name}", b"1")
    client.subscribe("/queue/>", ack=CLIENT)
    cluster.run()
    for step, left in ((Step.ROLLBACK_KEEP, 3), (Step.COMMIT, 0)):
        client.session.begin(b"l1")
        part, last = client.got[-1]
        client.session.settle(UpTo(part, None, last.sequence), ACCEPTED, tx=b"l1")
        end(cluster, client, b"l1", step, b"done")
        assert sum([depth(cluster, name) for name in names(cluster)]) == left
        assert len(client.got) == 3


def test_an_unknown_transaction_is_refused_at_once(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    route = client.route(f"/queue/{cluster.name_at(1)}")
    refusals: list[Callable[[], object]] = [
        lambda: client.session.accept(route, b"message-id:1\ntimestamp:1\n\n", tx=b"l9"),
        lambda: client.session.end(b"l9", Step.COMMIT, b"c"),
    ]
    for refused in refusals:
        with pytest.raises(QuireError) as raised:
            refused()
        assert raised.value.code == "unknown-transaction"


def test_a_verb_that_fails_in_a_transaction_makes_its_commit_fail(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    client.send(f"/queue/{name}", b"1")
    client.subscribe(f"/queue/{name}")
    cluster.run()
    for shards in ((1,), (0, 1)):
        client.session.begin(b"l1")
        for shard in shards:
            client.send(f"/queue/{cluster.name_at(shard)}", b"x", tx=b"l1")
        client.session.settle(These(client.got[0][0], [99]), ACCEPTED, tx=b"l1")
        cluster.run()
        assert client.errors[-1][1].code == "unknown-message"
        try:
            while not client.session.end(b"l1", Step.COMMIT, b"c") and client.over is None:
                cluster.run()
        except QuireError as raised:
            client.failed(b"c", raised)
        cluster.run()
        error = client.errors[-1][1]
        assert error.code == "transaction-rolled-back"
        if client.over is None:
            assert error.data["cause"] == "unknown-message"
        assert depth(cluster, cluster.name_at(0)) == 0


XID = branch_tx(Xid(1, b"g", b"b"))


@pytest.mark.parametrize("shards", [(1,), (0, 1, 2)])
def test_a_branch_is_prepared_and_committed_by_any_connection(cluster: SteppedCluster, shards: tuple[int, ...]) -> None:
    client = connect(cluster, cluster.members[0])
    client.session.begin(XID, b"begun")
    for shard in shards:
        client.send(f"/queue/{cluster.name_at(shard)}", b"1", tx=XID)
    end(cluster, client, XID, Step.END, b"end")
    end(cluster, client, XID, Step.PREPARE, b"prepare")
    assert client.results[b"prepare"] == PREPARED
    client.vanish()
    cluster.run()
    other = connect(cluster, cluster.members[2])
    other.session.call("recover", (), b"recover")
    cluster.run()
    assert other.results[b"recover"] == [XID]
    end(cluster, other, XID, Step.COMMIT_PREPARED, b"commit")
    assert other.tokens[-1] == b"commit"
    assert [depth(cluster, cluster.name_at(shard)) for shard in shards] == [1] * len(shards)
    end(cluster, other, XID, Step.COMMIT_PREPARED, b"again")
    assert [(token, error.code) for token, error in other.errors] == [(b"again", "unknown-xid")]


def test_a_branch_over_shards_that_is_committed_in_one_phase_is_so_at_none_if_one_is_lost(
    cluster: SteppedCluster,
) -> None:
    client = connect(cluster, cluster.members[0])
    client.session.begin(XID)
    for shard in (0, 1):
        client.send(f"/queue/{cluster.name_at(shard)}", b"1", tx=XID)
    end(cluster, client, XID, Step.END, b"end")
    client.session.end(XID, Step.COMMIT, b"commit")
    cluster.kill(1)
    cluster.run()
    assert (b"commit" in client.tokens, depth(cluster, cluster.name_at(0))) == (False, 0)


# What is lost.


@pytest.mark.parametrize("lost", ["owner", "link"])
def test_a_client_whose_shard_is_lost_has_done_nothing_at_the_others(cluster: SteppedCluster, lost: str) -> None:
    client = connect(cluster, cluster.members[0])
    own, other, gone = names(cluster)
    for name in (own, other, gone):
        client.send(f"/queue/{name}", b"1")
        client.subscribe(f"/queue/{name}")
    cluster.run()
    assert len(client.got) == 3
    if lost == "owner":
        cluster.kill(2)
    else:
        for link in cluster.members[0].links.all():
            if link is cluster.members[0].links._links[2]:
                link.fail(ShardMoved("cut"))
    cluster.run()
    assert isinstance(client.over, ShardMoved | ShardUnavailable)
    for name in (own, other):
        again = connect(cluster, cluster.members[1])
        again.subscribe(f"/queue/{name}")
        cluster.run()
        ((_, message),) = again.got
        assert (message.redelivered, message.failures) == (True, 0)


def test_a_consumer_of_advisories_outlives_a_shard_and_comes_back(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    consumer = client.subscribe("/topic/ActiveMQ.Advisory.Queue", b"s")
    cluster.run()
    assert client.tokens[-1] == b"s"
    assert len(consumer.parts) == 3
    cluster.kill(2)
    cluster.run()
    assert client.over is None
    assert len(consumer.parts) == 2
    cluster.start(2)
    cluster.advance(2.0)
    assert len(consumer.parts) == 3
    before = len(client.got)
    cluster.members[2].queue(cluster.name_at(2, "new"))
    cluster.run()
    assert len(client.got) > before


def test_a_consumer_of_advisories_does_not_wait_for_a_shard_without_an_owner(cluster: SteppedCluster) -> None:
    cluster.kill(2)
    client = connect(cluster, cluster.members[0])
    consumer = client.subscribe("/topic/ActiveMQ.Advisory.Queue", b"s")
    cluster.run()
    assert client.tokens[-1] == b"s"
    cluster.start(2)
    cluster.advance(2.0)
    assert len(consumer.parts) == 3


def test_what_has_moved_ends_the_session(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    client.subscribe(f"/queue/{name}")
    cluster.run()
    cluster.pin(queue(name), 2)
    cluster.run()
    assert isinstance(client.over, ShardMoved)


def test_a_send_to_where_a_destination_was_is_not_stored(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    route = client.route(f"/queue/{name}")
    cluster.pin(queue(name), 2)
    client.session.accept(route, b"message-id:1\ntimestamp:1\n\n")  # its door has not looked at the version yet
    client.session.took_input(False)
    cluster.run()
    assert isinstance(client.over, ShardMoved)
    assert name not in cluster.members[1].broker.destinations.queues


# What is full.


def test_a_held_send_lets_settling_pass_and_goes_on_where_it_was() -> None:
    cluster = SteppedCluster(2, Settings(store=StoreSettings(limit=30_000)))
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    client.send(f"/queue/{name}", *[bytes(1000)] * 30)
    client.subscribe(f"/queue/{name}", prefetch=1000)
    cluster.run()
    assert len(client.got) == 30
    client.send(f"/queue/{name}", *[bytes(1000)] * 30, token=b"t")
    cluster.run()
    assert b"t" not in client.tokens
    for part, message in list(client.got):
        part.acknowledge([message.sequence])
    cluster.run()
    assert client.tokens[-1] == b"t"
    assert len(client.got) == 60


def test_a_full_shard_is_sent_no_more_until_it_takes_it_again() -> None:
    cluster = SteppedCluster(2, Settings(store=StoreSettings(limit=20_000)))
    client = connect(cluster, cluster.members[0])
    route = client.route(f"/queue/{cluster.name_at(1)}")
    sent = 0
    while client.session.accept(route, b"message-id:1\ntimestamp:1\n\n" + bytes(10_000), token=b"t"):
        client.session.took_input(False)
        cluster.run()
        sent += 1
        assert sent < 200
    assert client.session.restricted
    goes_on = client.goes_on
    consumer = connect(cluster, cluster.members[1])
    consumer.subscribe(f"/queue/{cluster.name_at(1)}", ack=INDIVIDUAL)
    cluster.run()
    while len(consumer.got) < sent:
        for part, message in list(consumer.got):
            part.acknowledge([message.sequence])
        cluster.run()
    assert client.goes_on > goes_on
    assert client.tokens.count(b"t") == sent
    assert client.session.accept(route, b"message-id:1\ntimestamp:1\n\n")


def test_a_client_that_takes_no_output_holds_up_its_shard_and_nobody_else(cluster: SteppedCluster) -> None:
    client, other = connect(cluster, cluster.members[0]), connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    client.session.writable = False
    for each in (client, other):
        each.subscribe(f"/topic/{name}", maximum_pending=10_000)
    cluster.run()
    sender = connect(cluster, cluster.members[1])
    for _ in range(100):
        sender.send(f"/topic/{name}", bytes(20_000))
        cluster.run()
    assert len(other.got) == 100
    assert len(client.got) < 60
    client.session.drained()
    cluster.run()
    assert len(client.got) == 100


def test_a_message_that_is_larger_than_the_window_comes(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = cluster.name_at(1)
    large = bytes(600_000)
    client.send(f"/queue/{name}", large, token=b"t")
    client.subscribe(f"/queue/{name}")
    client.session.writable = False
    cluster.run()
    client.session.drained()
    cluster.run()
    assert client.bodies == [large]
    assert [member.broker.core.partial_bytes for member in cluster.members.values()] == [0, 0, 0]


def test_delivered_messages_take_no_credit_at_any_shard(cluster: SteppedCluster) -> None:
    client = connect(cluster, cluster.members[0])
    name = names(cluster)[1]
    client.send(f"/queue/{name}", *[b"%d" % n for n in range(12)])
    client.subscribe("/queue/>", prefetch=6)
    cluster.run()
    assert len(client.got) == 6
    part, last = client.got[-1]
    client.session.settle(UpTo(part, None, last.sequence), DELIVERED)
    cluster.run()
    assert len(client.got) == 12


def test_a_shard_that_has_much_to_answer_is_sent_no_more_until_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_session, "MOST_ASKED", 5)
    cluster = SteppedCluster(2)
    client = connect(cluster, cluster.members[0])
    route = client.route(f"/queue/{cluster.name_at(1)}")
    sent = 0
    while client.session.accept(route, b"message-id:1\ntimestamp:1\n\n", token=b"t"):
        client.session.took_input(False)
        sent += 1
        assert sent < 20
    goes_on = client.goes_on
    cluster.run()
    assert client.goes_on > goes_on
    assert client.tokens.count(b"t") == sent
    assert client.session.accept(route, b"message-id:1\ntimestamp:1\n\n", token=b"t")


def test_what_is_held_is_sent_although_its_client_has_gone() -> None:
    cluster = SteppedCluster(2, Settings(store=StoreSettings(limit=3000)))
    name = cluster.name_at(1)
    client, consumer = connect(cluster, cluster.members[0]), connect(cluster, cluster.members[1])
    client.send(f"/queue/{name}", bytes(4000))
    cluster.run()
    client.send(f"/queue/{name}", b"held", b"last")
    client.session.leave(CLEAN)
    cluster.run()
    assert depth(cluster, name) == 1
    consumer.subscribe(f"/queue/{name}")
    cluster.run()
    part, message = consumer.got[0]
    part.acknowledge([message.sequence])
    cluster.run()
    assert consumer.bodies[1:] == [b"held", b"last"]
    assert not cluster.members[1].virtual_clients.doors.open


def play_until(cluster: SteppedCluster, client: ToyDoor, steps: int) -> bool:
    """Sends, and a transaction over two shards, so many steps of them; whether that is all."""
    one, two = cluster.name_at(1), cluster.name_at(2)
    client.send(f"/queue/{one}", b"a", token=b"a")
    client.send(f"/queue/{two}", b"b", token=b"b")
    client.session.begin(b"l1")
    for name in (one, two):
        client.send(f"/queue/{name}", b"x", tx=b"l1")
    is_done, busy = client.session.end(b"l1", Step.COMMIT, b"c"), True
    while steps and (busy or not is_done):
        steps -= 1
        busy = cluster.step()
        if not is_done:
            is_done = client.session.end(b"l1", Step.COMMIT, b"c")
    if is_done:
        client.session.begin(b"l1")  # another one, so that its end may be said again
    return steps > 0


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_a_shard_may_be_lost_at_every_step(lost: int) -> None:
    steps, is_all = 0, False
    while not is_all:
        cluster = SteppedCluster(3)
        own, one, two = names(cluster)
        client = connect(cluster, cluster.members[0])
        client.send(f"/queue/{own}", b"in flight")
        client.subscribe(f"/queue/{own}")
        cluster.run()
        is_all = play_until(cluster, client, steps)
        steps += 1
        cluster.kill(lost)
        cluster.run()
        cluster.start(lost)
        cluster.advance(1.0)
        if client.over is None:  # nothing had been said to it yet: that has waited
            end(cluster, client, b"l1", Step.COMMIT, b"c")
            assert {b"a", b"b", b"c"} <= {*client.tokens}
        else:
            assert client.over.code in ("shard-moved", "shard-unavailable")
        cluster.advance(15.0)
        reader = connect(cluster, cluster.members[0])
        for name in (own, one, two):
            reader.subscribe(f"/queue/{name}", id=name)
        cluster.run()
        found = {name: [m.body for p, m in reader.got if p.consumer.spec.id == name] for name in (own, one, two)}
        assert [m.failures for _, m in reader.got] == [0] * len(reader.got)
        for name, body in ((one, b"a"), (two, b"b")):
            assert found[name].count(body) == 1 or (body not in client.tokens and body not in found[name])
        assert found[one].count(b"x") == found[two].count(b"x"), f"half of a transaction, after {steps} steps"
        assert b"c" not in client.tokens or found[one].count(b"x") == 1
    assert steps > 10
