"""Seeded histories of a cluster whose processes vanish, stop and lose their links: every promise is kept."""

import os
from random import Random

import pytest

from quire.testing.stepped import Frame, SteppedClient
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import settings

SEEDS = range(int(os.environ.get("QUIRE_CLUSTER_SEEDS", "12")))
SHARDS = 3
QUEUES = 6


class Actor:
    """A client, and what it has been told."""

    def __init__(self, client: SteppedClient) -> None:
        self.client = client
        self.held: list[Frame] = []
        self.asked: dict[str, list[str]] = {}  # the bodies that a receipt of an acknowledgement or a COMMIT is about
        self.subscriptions = 0
        self.transactions = 0

    @property
    def is_gone(self) -> bool:
        """Whether its connection has ended."""
        return self.client.connection.closed


class History:
    """One history.

    Attributes:
        confirmed: the bodies of messages whose receipt has come.
        given: those that were given to a consumer.
        done: those whose acknowledgement was confirmed.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = SteppedCluster(SHARDS, settings(), piece=self.random.choice([50, 1000, 1 << 20]))
        self.queues = [f"q.{number}" for number in range(QUEUES)]
        self.actors: list[Actor] = []
        self.sent = 0
        self.confirmed: set[str] = set()
        self.given: set[str] = set()
        self.done: set[str] = set()
        self.times_committed = 0

    def run(self, steps: int) -> None:
        """Do many things in a random order; then see that all that was confirmed is there, once."""
        actions = [self.send] * 6 + [self.acknowledge] * 10 + [self.connect, self.subscribe] * 4 + [self.commit] * 2
        actions += [self.leave, self.lose_process, self.start_process, self.start_process, self.pass_time]
        for _ in range(steps):
            self.random.choice(actions)()
            for _ in range(self.random.randrange(4)):
                self.cluster.step()
            self.look()
        self.drain()

    # What happens.

    def connect(self) -> None:
        """A client connects to a random process."""
        if len([actor for actor in self.actors if not actor.is_gone]) < 6 and self.cluster.members:
            number = self.random.choice(list(self.cluster.members))
            self.actors.append(Actor(self.cluster.connect(number)))

    def some(self) -> Actor | None:
        living = [actor for actor in self.actors if not actor.is_gone]
        return self.random.choice(living) if living else None

    def send(self) -> None:
        """A client sends a message, with a receipt; some to several queues, of which each gets a copy."""
        if actor := self.some():
            self.sent += 1
            body = str(self.sent)
            actor.client.send(self.random.choice(self.queues), body.encode(), {"receipt": f"s{body}"})

    def commit(self) -> None:
        """A client sends some messages and acknowledges one, in a transaction at one shard."""
        if actor := self.some():
            actor.transactions += 1
            name, queue = f"t{actor.transactions}", self.random.choice(self.queues)
            shard = self.cluster_shard(queue)
            bodies = []
            actor.client.frame("BEGIN", {"transaction": name})
            for _ in range(self.random.randint(1, 3)):
                self.sent += 1
                bodies.append(str(self.sent))
                actor.client.send(queue, bodies[-1].encode(), {"transaction": name})
            acknowledged = [m for m in actor.held if self.cluster_shard(m.headers["destination"][7:]) == shard][:1]
            for message in acknowledged:
                actor.held.remove(message)
                actor.client.ack(message, {"transaction": name})
            actor.asked[f"c{name}"] = [message.body.decode() for message in acknowledged]
            actor.asked[f"c{name}"] += [f"+{body}" for body in bodies]
            actor.client.frame("COMMIT", {"transaction": name, "receipt": f"c{name}"})

    def cluster_shard(self, queue: str) -> int:
        """The shard of a queue, as long as any process lives; else any."""
        return self.cluster.shard_of(queue) if self.cluster.members else 0

    def subscribe(self) -> None:
        if (actor := self.some()) and actor.subscriptions < 3:
            actor.subscriptions += 1
            name = self.random.choice([*self.queues, "q.*"])
            prefetch = str(self.random.choice([1, 3, 100]))
            actor.client.subscribe(name, id=str(actor.subscriptions), headers={"activemq.prefetchSize": prefetch})

    def acknowledge(self) -> None:
        """A client acknowledges something that it has."""
        if (actor := self.some()) and actor.held:
            message = actor.held.pop(self.random.randrange(len(actor.held)))
            body = message.body.decode()
            actor.asked[f"a{body}"] = [body]
            actor.client.ack(message, {"receipt": f"a{body}"})

    def leave(self) -> None:
        if actor := self.some():
            if self.random.random() < 0.5:
                actor.client.vanish()
            else:
                actor.client.frame("DISCONNECT", {"receipt": "bye"})

    def lose_process(self) -> None:
        """A process vanishes, stops, or nothing comes through to it any more."""
        if len(self.cluster.members) > 1:
            number = self.random.choice(list(self.cluster.members))
            what = self.random.choice(["kill", "kill", "stop", "cut"])
            if what == "kill":
                self.cluster.kill(number, publishes=self.random.random() < 0.5)
            elif what == "stop":
                self.cluster.stop(number)
            else:
                self.cluster.cut(number)

    def start_process(self) -> None:
        """A process takes a shard over that has none."""
        missing = [number for number in range(SHARDS) if number not in self.cluster.members]
        if missing:
            self.cluster.start(self.random.choice(missing))

    def pass_time(self) -> None:
        """Time goes by: short, or so long that links are found lost."""
        self.cluster.advance(self.random.choice([0.3, 3.0, 12.0]), 1.0)

    # What is seen.

    def look(self) -> None:
        """Take what clients were told."""
        for actor in self.actors:
            for receipt in actor.client.receipts():
                self.confirmed_by(actor, receipt)
            messages = actor.client.take("MESSAGE")
            for message in messages:
                body = message.body.decode()
                assert body not in self.done, f"message {body} is given again, and its acknowledgement was confirmed"
                self.given.add(body)
            actor.held += messages
            if actor.is_gone:
                actor.held.clear()

    def confirmed_by(self, actor: Actor, receipt: str) -> None:
        """What a client asked a receipt for is done."""
        if receipt.startswith("s"):
            self.confirmed.add(receipt[1:])
        elif receipt != "bye":
            for body in actor.asked[receipt]:
                if body.startswith("+"):
                    self.confirmed.add(body[1:])
                else:
                    self.done.add(body)

    def drain(self) -> None:
        """All processes run again: what was confirmed and is not done comes."""
        for number in range(SHARDS):
            if number not in self.cluster.members:
                self.cluster.start(number)
        self.cluster.advance(12, 1.0)
        self.look()
        for actor in self.actors:
            actor.client.vanish()
        self.cluster.run()
        actor = Actor(self.cluster.connect(0))
        self.actors = [actor]
        actor.client.subscribe("q.*")
        self.cluster.run()
        for _ in range(1000):
            self.look()
            if not actor.held:
                break
            for message in actor.held:
                actor.client.ack(message)
            actor.held.clear()
            self.cluster.run()
        assert actor.client.errors() == []
        assert self.confirmed <= self.given, f"lost: {self.confirmed - self.given}"
        actor.client.vanish()
        self.cluster.run()
        self.check_nothing_is_left()

    def check_nothing_is_left(self) -> None:
        """See that no session, virtual connection or charged byte is left without a client."""
        for number, member in self.cluster.members.items():
            depths = {name: queue.depth for name, queue in member.broker.destinations.queues.items() if queue.depth}
            assert depths == {}, (number, depths)
            assert [session for session in member.sessions.values() if not session.is_closed] == []
            assert member.broker.core.partial_bytes == 0
            for link in [*member.links.all(), *member.virtual_clients.links]:
                assert link.virtual == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_confirmed_is_lost_and_nothing_done_comes_again(seed: int) -> None:
    History(seed).run(120)
