"""A stream whose store cannot be read at one moment, and an account of what was promised to its clients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from quire.broker.streams.partition import Start
from quire.errors import QuireError, StoreError
from quire.http.pull_door import PollRequest, PullMembers, handle_of
from quire.management.queues import Management
from quire.management.streams import ConsumerGroupManagement, StreamManagement
from quire.sessions.base import ACCEPTED, Settlement, SettlementKind
from quire.sessions.settling import Outcome
from quire.store.base import Store
from quire.store.maintenance.verify import verify
from quire.testing.faults import FaultyStore
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.conformance.sessions.rig import guard
from tests.unit.broker.bulk.writer_rig import rows
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.member_rig import STEP, dashed
from tests.unit.broker.streams.pull_rig import Request

POLICY: dict[str, Any] = {
    "partitions": 2, "consume_timeout": 5.0, "retry_delays": "1s", "member_grace": 3.0, "rebalance_debounce": 0.2,
}  # fmt: skip

ROUNDS = 40
"""After so many rounds of taking what there is, everything has come."""


class FailingRig:
    """A broker with the stream ``s``, and clients that come back when they were told of an error."""

    def __init__(self, store: Store, **policy: Any) -> None:
        self.store = FaultyStore(store)  # where everything is, closed
        self.store.open()
        self.stepped = SteppedBroker(settings(policy={**POLICY, **policy}), self.store)
        self.streams = StreamManagement(Management(self.stepped.broker))
        self.pull = PullMembers(self.stepped.broker)
        self.groups = ConsumerGroupManagement(Management(self.stepped.broker))
        self.sent: set[str] = set()  # what was sent, and its receipt came
        self.done: set[str] = set()  # what was acknowledged, and its receipt came
        self.unclear: set[str] = set()  # what was acknowledged, and nobody knows whether that counts
        self.got: list[str] = []  # everything that came to anybody
        self.errors: list[str] = []  # what clients and operators were told
        self.headers: dict[str, str] = {}  # what all members say besides
        self._clients: dict[str, SteppedClient] = {}
        self._wishes: dict[str, dict[str, str]] = {}
        self._held: dict[str, list[Frame]] = {}
        self._past: dict[str, list[Frame]] = {}
        self._handles: dict[str, list[tuple[str, str]]] = {}
        self._stages: list[tuple[str, list[str]]] = []
        self._void: set[str] = set()
        self._number = 0
        self.stepped.broker.stream("s")
        self.stepped.run()

    # What happens of itself.

    def run(self) -> None:
        """Everything happens that can; all who were told of an error are gone."""
        self.stepped.run()
        for name, client in list(self._clients.items()):
            self._listen(name, client)
        broker = self.stepped.broker
        for stream in broker.destinations.streams.values():
            for group in stream.groups.values():
                for part in group.partitions:
                    assert len(group.coordinator.owners(part.partition.index)) <= 1
                    assert part.depth == part.lag, "what the group counts is what it has not finished"

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.stepped.advance(STEP)
            self.stepped.run()
        self.run()

    def _listen(self, name: str, client: SteppedClient) -> None:
        for frame in client.take("MESSAGE"):
            if "event" not in frame.headers:
                self.got.append(frame.body.decode())
                self._held.setdefault(name, []).append(frame)
        self.receipts(client)
        if client.connection.closed:
            errors = client.errors()
            assert errors, "who is disconnected is told why"
            self.errors += errors
            del self._clients[name]
            self._past.setdefault(name, []).extend(self._held.pop(name, []))

    def receipts(self, client: SteppedClient) -> None:
        for receipt in client.receipts():
            kind, _, body = receipt.partition("/")
            if kind == "sent":
                self.sent.add(body)
            elif kind == "done" and body not in self._void:
                self.unclear.discard(body)
                self.done.add(body)

    # Clients of STOMP.

    def client(self, name: str) -> SteppedClient:
        if name not in self._clients:
            self._clients[name] = self.stepped.connect()
        return self._clients[name]

    def send(self, *bodies: str, destination: str = "/stream/s", **headers: str) -> None:
        for body in bodies:
            head = {"destination": destination, "receipt": f"sent/{body}", **dashed(headers)}
            self.client("producer").frame("SEND", head, body.encode())
        self.run()

    def join(self, name: str, group: str = "g", **headers: str) -> None:
        """A client becomes a member, as long as the broker does not let it."""
        wish = {"group": group, "start": "earliest", **self.headers, **dashed(headers)}
        self._wishes[name] = wish
        for _ in range(5):
            head = {"destination": "/stream/s", "id": "0", "ack": "client-individual", "receipt": "joined", **wish}
            self.client(name).frame("SUBSCRIBE", head)
            self.run()
            if name in self._clients:
                return
        raise AssertionError(f"{name} cannot join")

    def join_again(self, name: str, **headers: str) -> None:
        """A member comes back on another connection, and says what it still has."""
        held = self._held.pop(name, [])
        self._clients.pop(name).vanish()
        self.run()
        places = ",".join(frame.headers["ack"].rpartition(".")[0] for frame in held)
        self._past.setdefault(name, []).extend(held)
        self.join(name, **{**self._wishes[name], **headers, "held": places})

    def vanish(self, name: str) -> None:
        if name in self._clients:
            self._clients.pop(name).vanish()
            self._past.setdefault(name, []).extend(self._held.pop(name, []))
            self.run()

    def ack(self, name: str, count: int = 1) -> None:
        self._settle(name, "ACK", self._take(name, count))

    def ack_late(self, name: str, count: int = 1) -> None:
        """A member acknowledges what it had on another connection, or had too long."""
        past = self._past.get(name, [])[:count] or self._held.get(name, [])[:count]
        for frame in past:
            self.unclear.add(frame.body.decode())
            self.client(name).frame("ACK", {"id": frame.headers["ack"], "receipt": "late"})
        self.run()

    def ack_run(self, name: str, count: int) -> None:
        """A member acknowledges what it has, and what it has had, in one go without receipts."""
        frames = [*self._take(name, count), *self._past.get(name, [])[:count]]
        data = b"".join([b"ACK\nid:%s\n\n\0" % frame.headers["ack"].encode() for frame in frames])
        self.unclear.update([frame.body.decode() for frame in frames])
        self.client(name).feed(data)
        self.run()

    def nack(self, name: str, count: int = 1, **headers: str) -> None:
        for frame in self._take(name, count):
            self.client(name).frame("NACK", {"id": frame.headers["ack"], "receipt": "back", **dashed(headers)})
            if "delay-level" in dashed(headers):
                self.unclear.add(frame.body.decode())
        self.run()

    def ack_in_transaction(self, name: str, count: int = 1) -> None:
        frames = self._take(name, count)
        client = self.client(name)
        client.frame("BEGIN", {"transaction": "t"})
        for frame in frames:
            self.unclear.add(frame.body.decode())
            client.frame("ACK", {"id": frame.headers["ack"], "transaction": "t"})
        client.frame("COMMIT", {"transaction": "t", "receipt": "committed"})
        self.run()

    def _take(self, name: str, count: int) -> list[Frame]:
        held = self._held.get(name, [])
        taken, self._held[name] = held[:count], held[count:]
        return taken if name in self._clients else []

    def _settle(self, name: str, command: str, frames: list[Frame]) -> None:
        group = self.stepped.broker.stream("s").groups[self._wishes[name]["group"]]
        for frame in frames:
            body, before = frame.body.decode(), group.late + group.stale + group.fenced
            self.unclear.add(body)
            self.client(name).frame(command, {"id": frame.headers["ack"], "receipt": f"done/{body}"})
            if group.late + group.stale + group.fenced > before:  # it was taken from the member meanwhile
                self._void.add(body)
        self.run()

    # Members that poll.

    def poll(self, name: str, maximum: int = 10, group: str = "g", **wish: Any) -> None:
        wish.setdefault("start", Start.parse("earliest"))
        asked = PollRequest(name, maximum, 0.0, **wish)
        request = self.insist(lambda: Request(self.pull.poll("s", group, asked, guard(self.stepped))))
        assert request.answers == 1
        for child, message in request.poll.taken:
            self.got.append(message.body.decode())
            self._handles.setdefault(name, []).append((handle_of(child, message), message.body.decode()))

    def poll_ack(self, name: str, count: int = 10, group: str = "g") -> None:
        """Acknowledge what a member got at any time; again, if it was told of an error."""
        for _ in range(3):
            handles = dict(self._handles.get(name, [])[:count])
            self.unclear |= set(handles.values()) - self.done
            outcomes = self.told(
                partial(self.pull.settle, "s", group, name, list(handles), ACCEPTED, guard(self.stepped))
            )
            if outcomes is not None and self.is_durable():
                counts = {handles[h] for h, outcome in outcomes.items() if outcome in (Outcome.DONE, Outcome.LATE)}
                self.done |= counts
                self.unclear -= counts
                return

    def poll_reject(self, name: str, count: int = 10, group: str = "g", *, dead_letter: bool = False) -> None:
        how = Settlement(SettlementKind.DEAD if dead_letter else SettlementKind.REJECTED)
        handles = [handle for handle, _ in self._handles.get(name, [])[:count]]
        self.told(lambda: self.pull.settle("s", group, name, handles, how, guard(self.stepped)))
        self.run()

    def poll_extend(self, name: str, group: str = "g") -> None:
        handles = [handle for handle, _ in self._handles.get(name, [])]
        how = Settlement(SettlementKind.EXTEND, 8000)
        self.told(lambda: self.pull.settle("s", group, name, handles, how, guard(self.stepped)))
        self.run()

    # Operators, and bulk writers.

    def told(self, call: Callable[[], Any]) -> Any:
        """The answer to a call; None if it was an error, which has a code."""
        try:
            return call()
        except StoreError as error:
            self.errors.append(error.code)
            return None

    def insist(self, call: Callable[[], Any]) -> Any:
        """The answer to a call, which is made again while it is an error."""
        for _ in range(5):
            errors = len(self.errors)
            answer = self.told(call)
            self.run()
            if len(self.errors) == errors:
                return answer
        raise AssertionError("the store can be read, and it is not answered")

    def is_durable(self) -> bool:
        """Whether the open commit is stored."""
        told: list[QuireError | None] = []
        Management(self.stepped.broker).confirm(told.append)
        self.run()
        assert len(told) == 1
        return told[0] is None

    def moved(self) -> None:
        """The group is going to be moved: what was done comes again or not, and what members have is theirs no more."""
        self.unclear |= self.done
        self.done.clear()
        self._held.clear()

    def stage(self, *bodies: str, destination: str = "/stream/s") -> None:
        broker = self.stepped.broker
        read = rows(self.stepped, [body.encode() for body in bodies], destination)
        self._stages.append((self.insist(lambda: broker.staged.stage("p", read)), list(bodies)))

    def write(self) -> None:
        self._number += 1
        ids = [id for id, _ in self._stages]
        self.insist(lambda: self.stepped.broker.staged.commit("p", self._number, ids))
        self.sent.update([body for _, bodies in self._stages for body in bodies])
        self._stages.clear()

    # The end.

    def settle(self, group: str = "g") -> None:
        """The store can be read: everything comes that is not done, and nothing that is."""
        self.store.mend()
        self.wait(6.0)
        for name in list(self._clients):
            self.client(name).frame("DISCONNECT")
            self._clients.pop(name).vanish()
        self.wait(10.0)
        finished, before = set(self.done), len(self.got)
        self.join("last", group)
        of = self.stepped.broker.stream("s").groups[group]
        for _ in range(ROUNDS):
            self.wait(1.0)
            self.ack("last", 1000)
            if not of.lag and not (of.retries and of.retries.depth):
                break
        came = self.got[before:]
        assert not finished.intersection(came), "what is done has come again"
        assert self.sent - finished - self.unclear <= set(came), "what is not done has not come"
        assert (of.lag, of.retries.depth if of.retries else 0) == (0, 0)
        self.client("last").frame("UNSUBSCRIBE", {"id": "0"})
        self.wait(1.0)
        assert self.stepped.broker.core.memory.used == 0
        assert self.stepped.broker.core.stored_bytes == self.stepped.broker.stream("s").stored_bytes + sum(
            [queue.bytes for queue in self.stepped.broker.queues.values()]
        )
        self._check_store()

    def _check_store(self) -> None:
        """The store has what the broker has, and nothing else."""
        assert list(verify(self.store)) == []
        broker = self.stepped.broker
        streams, groups = broker.destinations.streams.values(), broker.groups.all()
        retries = {group.retries.stored.name for group in groups if group.retries}
        names = {*broker.queues, *broker.destinations.topics, *broker.destinations.streams, *retries}
        assert {stored.name for stored in self.store.destinations()} == names
        lanes = {str(lane) for stream in streams for lane in stream.stored.lanes}
        assert {key.split("/")[1] for key, _ in self.store.marks("stream/")} <= lanes
        numbers = {str(group.number) for group in groups}
        found = [key.split("/") for key, _ in self.store.marks("group/")]
        assert {parts[2] if parts[1] in "hm" else parts[1] for parts in found} <= numbers


History = Callable[[FailingRig], None]


def reads_of(make: Callable[[], FailingRig], history: History) -> int:
    """How many reads a history takes of which none fails."""
    rig = make()
    before = rig.store.reads
    history(rig)
    count = rig.store.reads - before
    rig.store.close()
    return count


@contextmanager
def failing(make: Callable[[], FailingRig], nth: int, times: int = 1) -> Iterator[FailingRig]:
    """A rig whose nth read fails, and some after it."""
    rig = make()
    rig.store.at_read(nth, times=times)
    try:
        yield rig
    finally:
        rig.store.close()
