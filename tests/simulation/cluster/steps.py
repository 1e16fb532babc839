"""The steps that a history of a cluster is made of. Without anything to act on, each of them does nothing."""

from tests.simulation.cluster.subscribed import AckMode
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.steps import Begin, Crash, End, Leave, Read, Run, Step


class Send(Step, frozen=True):
    """A client sends messages, and connects before if it has to.

    Attributes:
        client: who.
        queue: where to.
        size: how long each body is, in bytes.
        count: how many.
        receipt: whether it asks for receipts.
        entry: to which process it connects, counted around.
    """

    client: str
    queue: str
    size: int = 0
    count: int = 1
    receipt: bool = False
    entry: int = 0

    def act(self, world: ClusterWorld) -> None:
        """Send."""
        for _ in range(self.count):
            world.client(self.client, self.entry).send(self.queue, self.size, receipt=self.receipt)


class Subscribe(Step, frozen=True):
    """A client subscribes, unless it has a subscription.

    Attributes:
        client: who.
        queue: to which queue, or to all of them.
        ack: how it acknowledges.
        prefetch: how many messages it may have in flight.
        entry: to which process it connects, counted around.
    """

    client: str
    queue: str
    ack: AckMode = "client-individual"
    prefetch: int = 100
    entry: int = 0

    def act(self, world: ClusterWorld) -> None:
        """Subscribe."""
        client = world.client(self.client, self.entry)
        if client.subscribed is None and not client.is_stuck:
            client.subscribe(world.subscribed(self.queue, self.ack, self.prefetch))


class Settle(Step, frozen=True):
    """A consumer acknowledges messages, or rejects them.

    Attributes:
        client: who.
        pick: which of the messages in flight, counted around.
        count: how many times.
        reject: whether it rejects.
        receipt: whether it asks for receipts.
    """

    client: str
    pick: int = 0
    count: int = 1
    reject: bool = False
    receipt: bool = False

    def act(self, world: ClusterWorld) -> None:
        """Settle."""
        if client := world.clients.get(self.client):
            for _ in range(self.count):
                client.settle(self.pick, reject=self.reject, receipt=self.receipt)


class OfProcess(Step, frozen=True):
    """A step of the process of a shard.

    Attributes:
        shard: of which; -1 for the process without a shard.
    """

    shard: int = 0


class Turn(OfProcess, frozen=True):
    """A process has one turn, if it wants one."""

    def act(self, world: ClusterWorld) -> None:
        """Turn."""
        if process := world.process(self.shard):
            process.turn()


class Write(OfProcess, frozen=True):
    """The database carries out the commit of a process, which does not hear of it yet; it may be stopped."""

    def act(self, world: ClusterWorld) -> None:
        """Write."""
        for process in world.processes_of(self.shard):
            process.write()


class Finish(OfProcess, frozen=True):
    """A process hears what has become of its commit.

    Attributes:
        fails: whether the database has no space for it.
    """

    fails: bool = False

    def act(self, world: ClusterWorld) -> None:
        """Finish."""
        for process in world.processes_of(self.shard):
            process.finish(fails=self.fails)


class Deliver(Step, frozen=True):
    """Packets come from one process to another.

    Attributes:
        pick: on which connection, counted around.
        count: how many.
    """

    pick: int = 0
    count: int = 1

    def act(self, world: ClusterWorld) -> None:
        """Deliver."""
        for _ in range(self.count):
            world.network.deliver(self.pick)


class Cut(Step, frozen=True):
    """A connection between two processes breaks.

    Attributes:
        pick: which, counted around.
        kept: how many packets that are under way come yet, in each direction.
    """

    pick: int = 0
    kept: int = 0

    def act(self, world: ClusterWorld) -> None:
        """Cut."""
        if world.network.cut(self.pick, self.kept):
            world.note("a connection between processes breaks")


class Wait(Step, frozen=True):
    """Time goes by. Processes look at their timers and at the map, and what stands by takes shards that it can take.

    Attributes:
        seconds: how much.
        quiet: whether nothing comes from one process to another meanwhile, and no commit ends.
    """

    seconds: float
    quiet: bool = False

    def act(self, world: ClusterWorld) -> None:
        """Wait."""
        world.note(f"{self.seconds} s go by")
        world.wait(self.seconds, delivering=not self.quiet)


class Stop(OfProcess, frozen=True):
    """A process is stopped, as by SIGSTOP."""

    def act(self, world: ClusterWorld) -> None:
        """Stop."""
        world.stop(self.shard)


class Continue(OfProcess, frozen=True):
    """What was stopped goes on."""

    def act(self, world: ClusterWorld) -> None:
        """Continue."""
        world.go_on(self.shard)


class Kill(OfProcess, frozen=True):
    """A process ends without a word.

    Attributes:
        written: whether its commit under way is made, though nobody hears of it.
        silently: whether its machine is gone too: its connections do not end.
    """

    written: bool = False
    silently: bool = False

    def act(self, world: ClusterWorld) -> None:
        """Kill."""
        world.kill(self.shard, written=self.written, silently=self.silently)


class Move(OfProcess, frozen=True):
    """The owner of a shard is asked to end, so that another process has it."""

    def act(self, world: ClusterWorld) -> None:
        """Move."""
        if process := world.process(self.shard):
            world.note(f"{process} is asked to end")
            process.leave()


class Place(Step, frozen=True):
    """An operator has a queue be at a shard, where its name says or elsewhere; refused if there is such a queue.

    Attributes:
        queue: which.
        shard: where.
        pick: which of the processes is asked that believe to have it, counted around.
    """

    queue: str
    shard: int = 0
    pick: int = 0

    def act(self, world: ClusterWorld) -> None:
        """Place."""
        world.pin(self.queue, self.shard, self.pick)


AnyStep = (
    Send | Subscribe | Settle | Turn | Write | Finish | Deliver | Cut | Wait | Stop | Continue | Kill | Move | Place
    | Run | Crash | Begin | End | Leave | Read
)  # fmt: skip
