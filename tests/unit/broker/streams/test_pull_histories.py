"""Whatever members that poll do, and whatever happens to them: what is done never comes again, the rest does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.streams.groups.retries import RetryQueue
from quire.errors import StoreFull
from quire.http.pull_door import read_handles, written
from quire.sessions.base import ACCEPTED, Handle, Settlement, SettlementKind
from quire.sessions.settling import Outcome
from tests.unit.broker.streams.member_rig import StreamRig
from tests.unit.broker.streams.pull_rig import Request, Script, script

NAMES = ("a", "b", "c")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6)),
        st.tuples(st.just("ask"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["ack", "reject", "extend", "begin anew"]), st.integers(0, 30)),
        st.tuples(st.sampled_from(["abandon", "leave"]), st.integers(0, 2)),
        st.tuples(st.just("time"), st.sampled_from([0.6, 1.2, 6.0, 11.0])),
        st.tuples(st.sampled_from(["turn", "commit", "fail", "crash"]), st.just(0)),
    ),
    max_size=40,
)


class History:
    """One history of a group whose members poll.

    Args:
        **policy: keys of the policy.

    Attributes:
        done: the messages whose acknowledgement is stored.
        acknowledged: those that count and are not stored yet.
    """

    def __init__(self, **policy: Any) -> None:
        self.rig = StreamRig(partitions=2, consume_timeout=5.0, retry_delays="1s", retry_maximum=-1, **policy)
        self.sent = 0
        self.done: set[str] = set()
        self.acknowledged: set[str] = set()
        self.scripts: list[Script] = []
        self.open: dict[str, Request] = {}
        self.bodies: dict[tuple[str, str], str] = {}
        self.seen: set[Request] = set()
        self.come()

    def come(self) -> None:
        """The programs find the broker."""
        first = script(self.rig)
        self.scripts = [first.other(name) for name in NAMES]
        self.open = {}

    def step(self, what: str, much: Any) -> None:
        """Do one step, and look at what came."""
        one = self.scripts[int(much) % 3]
        match what:
            case "send":
                self.send(much)
            case "ask":
                self.open[one.name] = one.begin(much, wait=float(much % 2 * 20))
            case "ack" | "reject" | "extend":
                self.settle(one, what, much)
            case "begin anew":
                self.open[one.name] = one.begin(10, held=[])
            case "abandon" if one.name in self.open and not self.open[one.name].answers:
                self.open.pop(one.name).poll.abandon()
            case "leave" if "g" in self.rig.stream.groups:
                one.leave()
            case "time":
                self.pass_time(much)
            case "crash":
                self.crash()
            case _:
                self.move(what)
        self.look()

    def move(self, what: str) -> None:
        """One step of the broker."""
        if what == "turn":
            self.rig.stepped.turn()
        elif self.rig.stepped.writer.batch is not None:
            self.rig.stepped.commit(StoreFull("full") if what == "fail" else None)

    def crash(self) -> None:
        """The broker is killed: what was not stored is not done."""
        self.acknowledged.clear()
        self.rig = self.rig.crashed()
        self.come()

    def pass_time(self, seconds: float) -> None:
        """Everything is stored in the end, whatever failed before."""
        self.rig.pass_time(seconds)
        if self.rig.broker.core.store_error is None:
            self.done |= self.acknowledged
            self.acknowledged.clear()

    def send(self, count: int) -> None:
        self.pass_time(1.2)
        for _ in range(count):
            self.sent += 1
            self.rig = StreamRig(stepped=self.rig.stepped) if self.rig.producer.connection.closed else self.rig
            self.rig.send(str(self.sent), partition=str(self.sent % 2))

    def settle(self, one: Script, what: str, much: int) -> None:
        """Say something of a few messages that this program got at any time."""
        handles = [handle for name, handle in self.bodies if name == one.name][much // 2 :][:5]
        if "g" not in self.rig.stream.groups:
            return
        if what == "ack":
            outcomes = one.members.settle("s", "g", one.name, handles, ACCEPTED, one.guard)
            counts = [handle for handle in handles if outcomes[handle] in (Outcome.DONE, Outcome.LATE)]
            self.acknowledged |= {self.bodies[one.name, handle] for handle in counts}
        elif what == "reject":
            one.members.settle("s", "g", one.name, handles, Settlement(SettlementKind.REJECTED), one.guard)
        else:
            one.members.settle("s", "g", one.name, handles, Settlement(SettlementKind.EXTEND, 8000), one.guard)

    def look(self) -> None:
        """Nothing that is done has come to anybody."""
        for name, request in self.open.items():
            if request.answers and request not in self.seen:
                self.seen.add(request)
                bodies = [message.body.decode() for _, message in request.poll.taken]
                assert not self.done.intersection(bodies)
                assert len(bodies) == len(set(bodies)) <= request.poll.maximum
                self.bodies |= {(name, handle): body for handle, body in zip(request.handles, bodies, strict=True)}

    def end(self) -> None:
        """Everything that is not done comes, and then nothing is left."""
        for _ in range(200):
            self.pass_time(12.0)
            for one in self.scripts:
                request = self.open[one.name] = one.begin(100)
                self.rig.run()
                self.look()
                request.poll.end()
                outcomes = one.ack(*request.handles)
                assert set(outcomes.values()) <= {Outcome.DONE}
                self.acknowledged |= {self.bodies[one.name, handle] for handle in outcomes}
            retries = self.rig.group().retries
            if self.rig.group().lag == 0 and (not isinstance(retries, RetryQueue) or retries.depth == 0):
                break
        self.pass_time(2.0)
        assert self.done == {str(number) for number in range(1, self.sent + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("retry", ["relocated", "in-place"])
@pytest.mark.parametrize("strategy", ["averagely", "shared"])
@given(steps=STEPS)
def test_what_is_done_never_comes_again_and_the_rest_does(
    steps: list[tuple[str, Any]], retry: str, strategy: str
) -> None:
    history = History(retry=retry, rebalance_strategy=strategy)
    for what, much in steps:
        history.step(what, much)
    history.end()


@given(st.integers(1, 10**17), st.integers(-1, 999_999), st.integers(0, 10**17))
def test_a_handle_is_read_as_it_was_written(offset: int, partition: int, epoch: int) -> None:
    assert read_handles([written(offset, partition, epoch)]) == [Handle(offset, offset, partition, epoch)]
