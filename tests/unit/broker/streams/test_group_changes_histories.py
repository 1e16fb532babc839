"""Whatever happens before, during and after: a group that was moved gets each message behind its place once more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.streams.groups.groups import reset, shift, skip
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.errors import StoreFull
from quire.testing.stepped import Frame
from tests.unit.broker.streams.member_rig import Member, StreamRig

PARTITIONS = 2

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["ack", "nack", "ack in a transaction"]), st.integers(0, 5)),
        st.tuples(st.just("reset"), st.integers(1, 12)),
        st.tuples(st.just("shift"), st.integers(-5, 5)),
        st.tuples(st.just("skip"), st.sampled_from([None, 0, 1])),
        st.tuples(st.just("time"), st.sampled_from([1.2, 11.0, 70.0])),
        st.tuples(
            st.sampled_from(["turn", "commit", "fail", "end the transactions", "join", "vanish", "crash"]), st.just(0)
        ),
    ),
    max_size=30,
)


class History:
    """One history of a stream and its group.

    Args:
        **policy: keys of the policy.
    """

    def __init__(self, order: str, **policy: Any) -> None:
        self.order = order
        self.rig = StreamRig(partitions=PARTITIONS, consume_timeout=60.0, **policy)
        self.members: list[Member] = []
        self.known: list[tuple[Member, Frame]] = []
        self.sent = 0
        self.join()

    def step(self, what: str, much: Any) -> None:
        """Do one step."""
        group = self.rig.group()
        match what:
            case "send":
                self.send(much)
            case "ack" | "nack" | "ack in a transaction":
                self.settle(what, much)
            case "reset":
                reset(group, Start(StartKind.OFFSET, much), much % 3 if much % 3 < PARTITIONS else None)
            case "shift":
                shift(group, much)
            case "skip":
                skip(group, much)
            case "time":
                self.rig.pass_time(much)
            case "turn":
                self.rig.stepped.turn()
            case "commit" | "fail" if self.rig.stepped.writer.batch is not None:
                self.rig.stepped.commit(StoreFull("full") if what == "fail" else None)
            case _:
                self.come_and_go(what)
        self.look()

    def come_and_go(self, what: str) -> None:
        if what == "join" and len(self.members) < 3:
            self.join()
        elif what == "vanish" and self.members:
            self.members.pop().client.vanish()
        elif what == "end the transactions":
            for member in self.members:
                member.client.frame("COMMIT", {"transaction": "t"})
                member.client.frame("BEGIN", {"transaction": "t"})
        elif what == "crash":
            self.rig = self.rig.crashed()
            self.members, self.known = [], []
            self.join()

    def send(self, count: int) -> None:
        if self.rig.producer.connection.closed:  # a commit with its messages failed
            self.rig.producer = self.rig.stepped.connect()
        for _ in range(count):
            self.sent += 1
            self.rig.post(str(self.sent), partition_key=str(self.sent % 3))

    def join(self) -> None:
        name = f"m{len(self.members)}"
        headers = {"group": "g", "start": "earliest", "member": name, "order": self.order, "prefetch-count": "4"}
        self.members.append(Member(self.rig, headers))
        self.members[-1].client.frame("BEGIN", {"transaction": "t"})

    def settle(self, what: str, index: int) -> None:
        if index < len(self.known):
            member, frame = self.known.pop(index)
            if what == "nack":
                member.client.nack(frame)
            else:
                member.client.ack(frame, {} if what == "ack" else {"transaction": "t"})

    def look(self) -> None:
        self.members = [member for member in self.members if not member.client.connection.closed]
        for member in self.members:
            self.known += [(member, frame) for frame in member.take()]

    def drained(self) -> list[tuple[int, int, bool]]:
        """Take and acknowledge everything, retries too: partition, offset, whether it was flagged."""
        found = []
        for _ in range(60):
            self.rig.pass_time(20.0)
            while frames := [(member, frame) for member in self.members for frame in member.take()]:
                for member, frame in frames:
                    place = (int(frame.headers["partition"]), int(frame.headers["offset"]))
                    found.append((*place, "redelivered" in frame.headers))
                    member.client.ack(frame)
                self.rig.run()
            if not self.rig.lag and not self.retries:
                return found
        raise AssertionError("there is no end")

    @property
    def retries(self) -> int:
        queue = self.rig.group().retries
        return 0 if queue is None else queue.depth

    def is_at_rest(self) -> None:
        """Nothing is left of anything."""
        group = self.rig.group()
        assert (self.rig.lag, self.retries, self.rig.stream.memory.used) == (0, 0, 0)
        left = [key for key, _ in self.rig.stepped.store.marks(f"group/{group.number}/", limit=10_000)]
        assert [key for key in left if "/d/" in key or "/r/" in key or key.endswith("/purge")] == []
        if isinstance(group.retries, RetryQueue):
            assert [group.retries.count_of(partition.lane) for partition in self.rig.stream.partitions] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "policy"),
    [("concurrent", {}), ("concurrent", {"retry": "in-place"}), ("key-ordered", {}), ("orderly", {})],
    ids=["relocated", "in place", "key-ordered", "orderly"],
)
@given(steps=STEPS)
def test_a_group_that_was_moved_gets_everything_once(
    order: str, policy: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    history = History(order, retry_delays="1s 5s", retry_maximum=1000, **policy)
    for what, much in steps:
        history.step(what, much)
    reset(history.rig.group(), Start(StartKind.EARLIEST))
    if not history.members:
        history.join()
    drained = history.drained()
    stored = [
        (partition.index, sequence, False)
        for partition in history.rig.stream.partitions
        for sequence in range(1, partition.announced + 1)
        if sequence not in partition.gone
    ]
    assert sorted(drained) == stored
    history.is_at_rest()
