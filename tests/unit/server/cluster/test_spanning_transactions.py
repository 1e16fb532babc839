"""Transactions over several shards: all of it or nothing, whichever process is lost at whichever step."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from quire.broker.transactions.decisions import Decisions, Participant, SpanningId
from quire.broker.transactions.xa import XaState
from quire.cluster.link import Opening
from quire.errors import QuireError, StoreFull
from quire.server.cluster.cluster_transactions import SpanningCommit
from quire.server.cluster.shard_transactions import LineEnd
from quire.testing.stepped_cluster import SteppedCluster

PATIENCE = 15.0
"""After so many seconds every branch has heard of its outcome."""


class Transfer:
    """A transaction that consumes a message of one shard, and sends one to a queue of each.

    Args:
        entry: where its client is connected; -1 for a process without a shard.
        source: the shard of the message.
    """

    def __init__(self, entry: int = 0, source: int = 1, shards: int = 3) -> None:
        self.cluster = cluster = SteppedCluster(shards, fronts=1)
        self.source = cluster.name_at(source, "source")
        self.targets = [cluster.name_at(shard, "target") for shard in range(shards)]
        client = self.client = cluster.connect(entry) if entry >= 0 else cluster.connect_to_front()
        client.send(self.source, b"m", {"receipt": "sent"})
        client.subscribe(self.source)
        cluster.run()
        assert client.receipts() == ["sent"]
        (message,) = client.take("MESSAGE")
        client.frame("BEGIN", {"transaction": "t"})
        client.ack(message, {"transaction": "t"})
        for target in self.targets:
            client.send(target, b"n", {"transaction": "t"})
        cluster.run()

    def commit(self) -> None:
        self.client.frame("COMMIT", {"transaction": "t", "receipt": "c"})

    @property
    def depths(self) -> list[int]:
        """How many messages there are at the source, and at each target."""
        cluster = self.cluster
        return [cluster.owner(name).queue(name).depth for name in [self.source, *self.targets]]

    def settle(self) -> None:
        """Start what is down, and let time go by until every branch has its outcome."""
        for number in range(self.cluster.shards):
            if number not in self.cluster.members:
                self.cluster.start(number)
        self.cluster.run()
        self.cluster.advance(PATIENCE, 1.0)

    def check(self) -> None:
        """All or nothing; nothing is left over; and what was confirmed is there."""
        committed, rolled_back = [0, 1, 1, 1], [1, 0, 0, 0]
        assert self.depths in (committed, rolled_back)
        if self.client.receipts():
            assert self.depths == committed
        for member in self.cluster.members.values():
            assert not member.broker.xa.spanning
            assert not member.shared.decisions.open
            assert not member.store.marks("decision/", "", 10)
            assert not member.store.marks("xa/", "", 10)
            assert member.broker.core.transaction_bytes == 0


class Ends:
    def __init__(self, ended: list[QuireError | None]) -> None:
        self.ended = ended.append

    def data_came(self, data: bytes) -> None:
        """Bytes have come."""

    def room_again(self) -> None:
        """More is welcome."""


def kill(transfer: Transfer, number: int, *, stored: bool) -> None:
    """Lose the process of a shard; the commit under way is stored, or not."""
    writer = transfer.cluster.members[number].writer
    if stored and writer.batch is not None:
        writer.apply()
    transfer.cluster.kill(number)


def crash(entry: int, source: int, at: int, number: int, *, stored: bool) -> bool:
    """Commit a transaction, and lose a process after so many steps; whether the commit was still under way then."""
    transfer = Transfer(entry, source)
    transfer.commit()
    was_busy = True
    for _ in range(at):
        was_busy = transfer.cluster.step()
    kill(transfer, number, stored=stored)
    transfer.settle()
    transfer.check()
    return was_busy


@pytest.mark.parametrize("entry", [-1, 0, 1])
def test_all_shards_do_their_part_before_the_receipt(entry: int) -> None:
    transfer = Transfer(entry)
    transfer.commit()
    while not transfer.client.receipts():
        assert transfer.cluster.step()
    assert transfer.depths == [0, 1, 1, 1]
    transfer.cluster.run()
    transfer.check()
    assert transfer.client.errors() == []


def test_it_is_rolled_back_at_all_shards() -> None:
    transfer = Transfer()
    transfer.client.frame("ABORT", {"transaction": "t", "receipt": "a"})
    transfer.settle()
    assert transfer.client.receipts() == ["a"]
    assert transfer.depths == [1, 0, 0, 0]
    transfer.check()


def test_what_is_sent_later_does_not_overtake_it() -> None:
    transfer = Transfer()
    transfer.commit()
    for target in transfer.targets:
        transfer.client.send(target, b"later")
    transfer.client.frame("DISCONNECT", {"receipt": "bye"})
    transfer.cluster.run()
    assert transfer.client.receipts() == ["c", "bye"]
    consumer = transfer.cluster.connect(2)
    for target in transfer.targets:
        consumer.subscribe(target, id=target)
        transfer.cluster.run()
        assert consumer.messages() == [b"n", b"later"]


def test_several_may_be_open_and_one_follows_another() -> None:
    cluster = SteppedCluster(2)
    names = [cluster.name_at(shard) for shard in range(2)]
    client = cluster.connect(0)
    for transaction in "ab":
        client.frame("BEGIN", {"transaction": transaction})
    for name in names:
        for transaction in "ba":
            client.send(name, transaction.encode(), {"transaction": transaction})
    for transaction in "ab":
        client.frame("COMMIT", {"transaction": transaction, "receipt": transaction})
    cluster.run()
    assert client.receipts() == ["a", "b"]
    for name in names:
        client.subscribe(name, id=name)
        cluster.run()
        assert client.messages() == [b"a", b"b"]


@pytest.mark.slow  # each process is lost after each step
@pytest.mark.parametrize("stored", [False, True], ids=["lost", "stored"])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(("entry", "source"), [(0, 1), (0, 0), (-1, 2)])
def test_a_process_may_be_lost_at_any_step(entry: int, source: int, number: int, stored: bool) -> None:
    at = 0
    while crash(entry, source, at, number, stored=stored):
        at += 1
    assert at > 6


@pytest.mark.parametrize("at", [1, 3, 5, 7, 9, 11, 13, 15])
@pytest.mark.parametrize("number", range(3))
def test_a_process_may_be_lost_at_a_step(at: int, number: int) -> None:
    crash(0, 1, at, number, stored=bool(at % 4 == 1))


@pytest.mark.parametrize("at", range(0, 24, 2))
def test_the_client_may_vanish_at_any_step(at: int) -> None:
    transfer = Transfer()
    transfer.commit()
    for _ in range(at):
        transfer.cluster.step()
    transfer.client.vanish()
    transfer.settle()
    transfer.check()


@pytest.mark.parametrize("at", range(0, 24, 3))
@pytest.mark.parametrize("number", range(3))
def test_a_process_may_be_cut_off_at_any_step(at: int, number: int) -> None:
    transfer = Transfer()
    transfer.commit()
    for _ in range(at):
        transfer.cluster.step()
    transfer.cluster.cut(number)
    transfer.settle()
    transfer.settle()
    transfer.check()


@pytest.mark.parametrize("at", range(24))
def test_a_store_may_refuse_any_commit(at: int) -> None:
    transfer = Transfer()
    transfer.commit()
    for _ in range(at):
        transfer.cluster.step()
    for member in transfer.cluster.members.values():
        if member.writer.batch is not None:
            member.commit(StoreFull("full"))
    transfer.settle()
    transfer.check()


def test_a_part_that_is_open_for_too_long_fails_all() -> None:
    transfer = Transfer()
    member = transfer.cluster.members[1]
    for transaction in list(member.broker.transactions.timeouts._deadlines):
        transaction.time_out()
    transfer.commit()
    transfer.settle()
    assert transfer.client.errors() == ["transaction-timed-out"]
    assert transfer.depths == [1, 0, 0, 0]
    transfer.check()


def test_branches_are_shown_to_operators_and_not_to_transaction_managers() -> None:
    transfer = Transfer()
    transfer.commit()
    prepared = [member for member in transfer.cluster.members.values() if member is not transfer.cluster.members[1]]
    while not all(member.broker.xa.spanning for member in prepared):
        assert transfer.cluster.step()
    for member in prepared:
        assert len(member.broker.xa.prepared()) == 1
        assert member.broker.xa.recover() == []


@pytest.mark.parametrize(("outcome", "left"), [("commit", [1, 1, 0, 0]), ("rollback", [1, 0, 0, 0])])
def test_an_operator_may_decide_over_a_branch(outcome: str, left: list[int], caplog: pytest.LogCaptureFixture) -> None:
    transfer = Transfer(0, 1)
    transfer.commit()
    member = transfer.cluster.members[0]
    while not member.store.marks("xa/", "", 1):
        assert transfer.cluster.step()
    (xid,) = member.broker.xa.spanning
    getattr(member.broker.xa, outcome)(xid)
    transfer.client.vanish()
    transfer.settle()
    assert transfer.depths == left
    assert not member.broker.xa.spanning
    assert ("transaction.heuristic" in [getattr(record, "event", "") for record in caplog.records]) is (
        outcome == "commit"
    )


# Any order of steps.


def step_some(cluster: SteppedCluster, random: Random) -> None:
    """A step of some processes and some links, in any order."""
    members = [*cluster.members.values(), *cluster.fronts]
    acts: list[Callable[[], object]] = [member.step for member in members]
    acts += [partial(port.pump, 1 << 20) for port in cluster._ports]
    for act in random.sample(acts, random.randint(1, len(acts))):
        act()


def run_history(seed: int) -> None:
    """A transaction in a cluster where anything may be lost, once or twice."""
    random = Random(seed)
    transfer = Transfer(random.choice([-1, 0, 1, 2]), random.randrange(3))
    transfer.commit()
    for _ in range(random.choice([1, 1, 2])):
        for _ in range(random.randrange(40)):
            step_some(transfer.cluster, random)
        number, fault = random.randrange(3), random.randrange(5)
        if number not in transfer.cluster.members:
            continue
        member = transfer.cluster.members[number]
        if fault <= 1:
            kill(transfer, number, stored=bool(fault))
            transfer.cluster.start(number)
        elif fault == 2:
            transfer.cluster.cut(number)
        elif fault == 3 and not transfer.client.connection.closed:
            transfer.client.vanish()
        elif member.writer.batch is not None:
            member.commit(StoreFull("full"))
    transfer.settle()
    transfer.settle()
    transfer.check()


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_steps_ends_well(seed: int) -> None:
    run_history(seed)


@pytest.mark.slow  # more of them
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_orders_of_steps_end_well(first: int) -> None:
    for seed in range(first, first + 100):
        run_history(seed)


# Processes that were replaced and do not know it.


def test_what_a_replaced_owner_says_does_not_count() -> None:
    cluster = SteppedCluster(2)
    decisions = cluster.members[0].shared.decisions
    id = SpanningId(0, 1, b"0123456789abcdef")
    session = cluster.connect(0).session
    decisions.enlist(id, session)
    decisions.decide(id, [Participant(1, 7)], lambda: None)
    decisions.done(id, 0, 6)
    assert id in decisions.open
    decisions.done(id, 0, 7)
    assert id not in decisions.open
    cluster.run()
    assert not cluster.members[0].store.marks("decision/", "", 1)


def test_a_replaced_coordinator_cannot_have_a_branch_rolled_back() -> None:
    transfer = Transfer(0, 1)
    transfer.commit()
    member, coordinator = transfer.cluster.members[0], transfer.cluster.members[1]
    while not member.store.marks("xa/", "", 1):
        assert transfer.cluster.step()
    (xid,) = member.broker.xa.spanning
    id, _ = SpanningId.of(xid)
    end = LineEnd(lambda *_: None, lambda _: None)
    member.shared.outcomes._heard(end, ["gone", str(xid), str(id.epoch - 1)])
    member.run_turns()
    assert member.broker.xa.branch(xid).state is XaState.PREPARED
    member.shared.outcomes._heard(end, ["gone", str(xid), str(id.epoch)])
    member.run_turns()
    assert member.broker.xa.branch(xid).state is XaState.ROLLING_BACK
    assert id.epoch == coordinator.cluster_map.epoch


@pytest.mark.parametrize("line", [b"commit\n", b"commit x\n", b"burn 51756972-00-00\n", b"x" * 2000])
def test_a_process_that_says_what_is_not_understood_is_not_listened_to(line: bytes) -> None:
    cluster = SteppedCluster(2)
    ended: list[QuireError | None] = []
    end = LineEnd(lambda *_: None, lambda _: None)
    connection = end.connection = cluster.members[0].links.open(1, Opening("outcomes", "", [], "test", "outcomes"), end)
    connection.end = Ends(ended)
    connection.write(line)
    cluster.run()
    assert len(ended) == 1
    assert ended[0] is not None


# Planted faults: each is found.


def decides_early(commit: SpanningCommit[int]) -> Mapping[int, str]:
    """A prepare of nothing."""
    place = commit._place(commit._coordinator)
    commit._id = SpanningId(place.shard, place.epoch, commit._token)
    commit._others = [commit._coordinator]
    return {commit._coordinator: f"enlist {commit._token.hex()}"}


def forgets_early(decisions: Decisions, id: SpanningId, *_: object) -> None:
    """Forget a decision as soon as one participant has committed."""
    if (decision := decisions.open.get(id)) is not None:
        decision.open = dict.fromkeys([0])
        DONE(decisions, id, 0, 1 << 40)


def tells_early(decisions: Decisions, id: SpanningId, *arguments: Any) -> None:
    """Tell participants to commit before the decision is stored."""
    DECIDE(decisions, id, *arguments)
    decisions.stored(id, decisions.open[id])


DONE, DECIDE = Decisions.done, Decisions.decide

FAULTS: list[tuple[type, str, Callable[..., object]]] = [
    (Decisions, "_load", lambda *_: None),
    (Decisions, "may_commit", lambda *_: False),
    (Decisions, "done", forgets_early),
    (Decisions, "decide", tells_early),
    (SpanningCommit, "_prepare", decides_early),
]


def run_histories(count: int) -> None:
    """Many histories."""
    for seed in range(count):
        run_history(seed)


@pytest.mark.slow  # until it is found
@pytest.mark.parametrize(("owner", "name", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises(AssertionError):
        run_histories(400)


# Streams.


def stream_at(cluster: SteppedCluster, shard: int) -> str:
    """The name of a stream that a shard has."""
    return next(name for n in range(1000) if cluster.shard_of(f"stream://{(name := f's{n}')}") == shard)


@pytest.mark.parametrize("first", ["stream", "queue"])
def test_the_shard_of_a_stream_decides_if_it_is_acknowledged_first(first: str) -> None:
    cluster = SteppedCluster(3)
    stream, queue, target = stream_at(cluster, 1), cluster.name_at(0), cluster.name_at(2)
    client = cluster.connect(0)
    member = {
        "destination": f"/stream/{stream}",
        "id": "s",
        "group": "g",
        "start": "earliest",
        "ack": "client-individual",
    }
    client.frame("SEND", {"destination": f"/stream/{stream}"}, b"stream")
    client.send(queue, b"queue")
    cluster.run()
    client.frame("SUBSCRIBE", member)
    client.subscribe(queue, id="q")
    cluster.advance(3)
    messages = {message.body.decode(): message for message in client.take("MESSAGE")}
    assert sorted(messages) == ["queue", "stream"]
    client.frame("BEGIN", {"transaction": "t"})
    client.send(target, b"n", {"transaction": "t"})
    for name in (first, *({"stream", "queue"} - {first})):
        client.ack(messages[name], {"transaction": "t"})
    client.frame("COMMIT", {"transaction": "t", "receipt": "c"})
    cluster.advance(3)
    done = first == "stream"
    assert client.receipts() == (["c"] if done else [])
    assert client.errors() == ([] if done else ["transaction-spans-shards"])
    assert [cluster.owner(name).queue(name).depth for name in (queue, target)] == ([0, 1] if done else [1, 0])
    again = cluster.connect(2)
    again.frame("SUBSCRIBE", member)
    cluster.advance(30)
    assert again.messages() == ([] if done else [b"stream"])
