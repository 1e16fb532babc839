"""The steps that a history of streams is made of. Without anything to act on, each of them does nothing."""

from quire.broker.streams.groups.retries import level_ms
from quire.errors import StoreError
from tests.simulation.steps import CommonStep, Step
from tests.simulation.streams.hands import AckMode
from tests.simulation.streams.joining import Claim, Wish
from tests.simulation.streams.log import Draft
from tests.simulation.streams.moving import To, move
from tests.simulation.streams.setup import GroupSetup
from tests.simulation.streams.world import StreamWorld

MOST_PARTITIONS = 5
"""The stream gets no more partitions than this."""


class Send(Step, frozen=True):
    """A client sends messages, and connects before if it has to.

    Attributes:
        client: who.
        size: how long each body is, in bytes.
        count: how many.
        partition: which partition it names; -1 for none.
        key: their partition key; empty for none.
        color: a header that groups may select by.
        receipt: whether it asks for receipts.
    """

    client: str
    size: int = 0
    count: int = 1
    partition: int = -1
    key: str = ""
    color: str = ""
    receipt: bool = False

    def act(self, world: StreamWorld) -> None:
        """Send."""
        partition = self.partition if self.partition < len(world.stream.partitions) else -1
        for _ in range(self.count):
            draft = Draft(self.size, partition, self.key, self.color)
            world.client(self.client).send(draft, receipt=self.receipt)


class Join(Step, frozen=True):
    """A client becomes a member of a group, or a reader, unless it is one.

    Attributes:
        client: who.
        group: in which group; empty for a reader.
        member: under which name; empty for none.
        ack: how it acknowledges.
        prefetch: how many messages it may have.
        timeout: how long it may have one, in seconds; 0 for what the policy says.
        claim: what it says it has still, if it was a member before.
        says_order: whether it says what order it relies on.
        events: whether it wants to be told what happens.
    """

    client: str
    group: str = ""
    member: str = ""
    ack: AckMode = "client-individual"
    prefetch: int = 100
    timeout: float = 0
    claim: Claim = "none"
    says_order: bool = False
    events: bool = False

    def act(self, world: StreamWorld) -> None:
        """Join."""
        of = world.setup.group(self.group) if self.group else GroupSetup("")
        if of is None:
            return
        is_new = self.group not in world.stream.groups
        order = of.order if self.group and (self.says_order or is_new) else None
        claim = "none" if self.ack == "auto" else self.claim  # what is acknowledged by being sent is not held
        wish = Wish(
            self.group, self.member, self.ack, self.prefetch, self.timeout, claim, order, of.color, of.start,
            self.events,
        )  # fmt: skip
        world.join(world.client(self.client), wish)


class Settle(Step, frozen=True):
    """A member acknowledges what it has.

    Attributes:
        client: who.
        pick: which of the messages in its hands, counted around.
        count: how many times.
        receipt: whether it asks for receipts.
    """

    client: str
    pick: int = 0
    count: int = 1
    receipt: bool = False

    def act(self, world: StreamWorld) -> None:
        """Acknowledge."""
        if client := world.clients.get(self.client):
            for _ in range(self.count):
                client.acknowledge(self.pick, receipt=self.receipt)


class Reject(Step, frozen=True):
    """A member rejects what it has.

    Attributes:
        client: who.
        pick: which of the messages in its hands, counted around.
        delay: how long the next delivery has to wait, in seconds; -1 for what the policy says.
        level: the level of that delay; 0 for none, -1 for a dead letter.
        receipt: whether it asks for a receipt.
    """

    client: str
    pick: int = 0
    delay: float = -1
    level: int = 0
    receipt: bool = False

    def act(self, world: StreamWorld) -> None:
        """Reject."""
        headers: dict[str, str] = {}
        delay_ms = None
        if self.level:
            headers["delay-level"] = str(self.level)
            delay_ms = level_ms(self.level) if self.level > 0 else None
        elif self.delay >= 0:
            delay_ms = round(self.delay * 1000)
            headers["redelivery-delay"] = str(delay_ms)
        if client := world.clients.get(self.client):
            client.reject(self.pick, headers, delay_ms, letter=self.level < 0, receipt=self.receipt)


class Extend(Step, frozen=True):
    """A member extends the leases on what it has.

    Attributes:
        client: who.
        pick: which of the messages in its hands, counted around.
        seconds: the lease ends so many seconds from now.
    """

    client: str
    pick: int = 0
    seconds: float = 1.0

    def act(self, world: StreamWorld) -> None:
        """Extend."""
        if client := world.clients.get(self.client):
            client.extend(self.pick, self.seconds)


class Stray(Step, frozen=True):
    """A member acknowledges what it had once and does not have: again, late, or in vain.

    Attributes:
        client: who.
        pick: which of all that it had, counted around.
        reject: whether it rejects.
    """

    client: str
    pick: int = 0
    reject: bool = False

    def act(self, world: StreamWorld) -> None:
        """Acknowledge."""
        if client := world.clients.get(self.client):
            client.stray(self.pick, reject=self.reject)


class Grow(Step, frozen=True):
    """The stream gets one more partition."""

    def act(self, world: StreamWorld) -> None:
        """Add it."""
        count = len(world.stream.partitions) + 1
        if count <= MOST_PARTITIONS:
            world.note(f"the stream has {count} partitions")
            world.stepped.broker.destinations.add_partitions(world.stream, count)
            world.moments.next()


class Pin(Step, frozen=True):
    """Somebody pins records of all partitions, instead of what he had pinned.

    Attributes:
        first: from which offset on.
        seconds: for how long.
    """

    first: int = 1
    seconds: float = 5.0

    def act(self, world: StreamWorld) -> None:
        """Pin."""
        world.note(f"everything from {self.first} on is pinned for {self.seconds:g} s")
        offsets = {partition.index: self.first for partition in world.stream.partitions}
        world.stream.pins.set("reader", offsets, round(self.seconds * 1000))
        world.keeping.pin("reader", world.stream, world.log, self.first, self.seconds, world.moments.next())


class Move(Step, frozen=True):
    """An operator moves a group.

    Attributes:
        group: which.
        to: where to.
        value: the offset, or by how many offsets it is shifted.
        partition: the only partition that this is about; -1 for all.
        fails: which of the reads that it takes fails; 0 for none.
    """

    group: str
    to: To = "earliest"
    value: int = 1
    partition: int = -1
    fails: int = 0

    def act(self, world: StreamWorld) -> None:
        """Move it."""
        consumption = world.groups.get(self.group)
        if consumption is not None and self.partition < len(world.stream.partitions):
            if self.fails:
                world.store.fail_reads(self.fails)
            try:
                move(world, consumption, self.to, self.value, None if self.partition < 0 else self.partition)
            except StoreError as error:
                world.note(f"it cannot be moved: {error}")


class Stop(Step, frozen=True):
    """The broker stops cleanly, and is started again."""

    def act(self, world: StreamWorld) -> None:
        """Stop."""
        world.stop()


AnyStep = Send | Join | Settle | Reject | Extend | Stray | Grow | Pin | Move | Stop | CommonStep
