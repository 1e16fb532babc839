"""What a client's session is, whatever its client speaks: the verbs of a session, and what a door hears of them.

A *door* speaks a protocol to clients: it turns frames into verbs, and deliveries into frames, and does nothing else. It
is given a ``Session`` and does not know which of three it has: ``LocalSession`` is of one broker, ``RemoteSession`` of
another shard of a cluster, ``ClusterSession`` of a cluster, over the two others. The owner's end of a link between
shards is a door as well.

Rules that every session keeps; the conformance test of sessions has a case for each:

1. ``True``: taken. ``False``: nothing was done. The door hands in the same piece again after ``Door.go_on``, and until
   then nothing but ``settle`` outside of transactions, ``credit`` and ``pull``: they make room.
2. An error that is known at once is raised, and nothing was done; but of ``These`` all that are in flight are settled,
   and the error is of the first other one. An error that is found later is told to ``Door.failed`` with the token of
   the verb. A door treats both alike.
3. A token comes back, in ``Door.confirmed``, when everything before it is durable; that of ``open`` and ``subscribe``
   at once, but of many destinations when all are subscribed, and of a new durable subscription or group when its name
   is stored. From one shard tokens come in the order in which they were given, unless a commit failed. A result
   (``Door.answered``) comes as a token does; that of EXTEND at once.
4. Verbs take effect at each shard in their order. Between shards there is no order.
5. ``subscribe`` adds the first part before it returns, or before its first delivery. The token of a plain consumer
   comes before its first delivery, and that of a member before its first event. No other verb calls the door before it
   returns, but for ``part_gone`` and the end of a pull for none.
6. If a verb in a transaction fails that has no token, the transaction has failed: its commit is refused.

A delivery is a pair of a part and a message; no object is made for it. Its name is the part's number with the
message's sequence. The name of a member's message is a ``Handle``, which outlives the connection.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from quire.broker.core.core import Target
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.routing.addresses import Address
from quire.broker.streams.groups.group import NOTHING, Held
from quire.broker.streams.groups.group_definition import Mode, Order
from quire.broker.streams.partition import Start
from quire.destination import Destination, DestinationKind
from quire.errors import QuireError
from quire.message import Message
from quire.selectors import Selector

Token = Any
"""Given back when a verb is done; None if its client does not wait. A door mostly gives its encoded answer."""

Tx = bytes
"""The name of a transaction: ``b"l"`` with the door's name of a local one, ``b"x"`` with the XID of a branch."""


class Opening(NamedTuple):
    """How a client introduces itself.

    Attributes:
        claims: whether one connection may have this client id.
        takeover: the key of which there is one session: an older one with it ends; None for none.
        announced: whether advisories tell of the connection.
        is_made_up: whether the client made its id up, so that no other connection of a cluster has it.
    """

    protocol: str
    client_id: str | None = None
    claims: bool = True
    takeover: str | None = None
    announced: bool = True
    is_made_up: bool = False


class Traits(NamedTuple):
    """What the headers of a message say of its way, beside its destination.

    Attributes:
        timing: its delay and repetition, as headers say it (``quire.broker.schedule``); None for at once.
        partition_key: what chooses its partition, in a stream; None for none.
        partition: the partition of a stream it is for, as a header says it; None for any.
        by_content: whether the key and the partition are not said here, but by the headers of each message.
    """

    grouped: bool = False
    timing: Any = None
    partition_key: str | None = None
    partition: str | None = None
    by_content: bool = True


PLAIN = Traits()


class Sending(NamedTuple):
    """What a message is sent with.

    Attributes:
        expiration: when it expires, in milliseconds since the epoch; 0 for never.
        producer: the producer that numbers its messages; empty for none.
    """

    expiration: int = 0
    priority: int = 4
    persistent: bool = True
    producer: str = ""
    producer_sequence: int = 0


USUAL = Sending()


@dataclass(slots=True)
class Route:
    """Where messages to a destination go, found once and kept by the door while ``Session.version`` stays.

    Rights are asked and destinations are created when a route is made, never for a message.

    Attributes:
        text: the destination, as a header has it.
        target: takes the messages.
        receipts: takes the tokens of those whose sender waits; the session empties it.
        persistent: whether messages are stored; None if the message says.
        stored: whether anything that is sent here may be stored: the open commit concerns its sender.
        is_plain: whether a message needs nothing but ``target.send`` while the session is not ``restricted``: no
            schedule, no number of a producer. A target with a limit of size may refuse one.
    """

    text: str
    target: Target
    receipts: list[Token]
    persistent: bool | None = None
    stored: bool = True
    is_plain: bool = True


class ConsumerKind(Enum):
    """What a consumer is."""

    PLAIN = auto()
    DURABLE = auto()
    BROWSER = auto()
    MEMBER = auto()
    READER = auto()


@dataclass(frozen=True, slots=True)
class Membership:
    """What a client wants of a stream: as a member of a group, or as a reader, which has none and stores nothing.

    A member without a name is not awaited when its connection is lost.

    Attributes:
        start: where a new group begins; None if nothing is said.
        order: what order the group relies on; None for what the group has.
        consume_timeout: how long it may have a message, in seconds; None for what the policy says.
        room: where it runs.
        held: what it still has of an earlier connection.
    """

    group: str | None
    member: str | None = None
    start: Start | None = None
    mode: Mode = Mode.CLUSTERING
    order: Order | None = None
    consume_timeout: float | None = None
    room: str = ""
    partitions: tuple[int, ...] = ()
    held: Held = NOTHING
    events: bool = False


@dataclass(frozen=True, slots=True)
class SubscribeSpec:
    """What a consumer wants.

    Attributes:
        id: the door's name of it, for advisories, operators and errors.
        ack: AUTO: a message is done when it is written. CLIENT, INDIVIDUAL: it is in flight until it is settled.
        prefetch: how many messages may be in flight; None for what the policy says, 0 for none that is not pulled.
        priority: consumers with a higher one are served first.
        exclusive: whether it wants all messages for itself.
        no_local: whether it wants none that its own connection sent.
        retroactive: whether it wants messages from before it came, as the topic keeps them.
        maximum_pending: how many messages may wait for it at a topic; None for what the policy says.
        replay: whether a consumer of advisories is told first what is there.
        tracked: whether the door names messages by more than their part and sequence, so that the parts of other shards
            know what is in flight.
        loss_counts: whether the oldest message in flight counts as a failed delivery if the connection is lost.
    """

    id: str
    addresses: tuple[Address, ...]
    kind: ConsumerKind = ConsumerKind.PLAIN
    ack: AckMode = AckMode.INDIVIDUAL
    prefetch: int | None = None
    selector: Selector | None = None
    priority: int = 0
    exclusive: bool = False
    no_local: bool = False
    retroactive: bool = False
    maximum_pending: int | None = None
    name: str | None = None
    membership: Membership | None = None
    replay: bool = False
    tracked: bool = False
    loss_counts: bool = True


class Consumer(Protocol):
    """A consumer, as a door holds it: what ``subscribe`` returned.

    Attributes:
        parts: what it has of the core: one of a destination, several of a pattern or a list, one for each partition
            that a member is assigned.
        only_part: the part, if it can never have another one; it is set before ``Door.part_added`` hears of it. None of
            a pattern, a list, a member, and of what is spread over shards.
    """

    spec: SubscribeSpec

    @property
    def parts(self) -> "Sequence[Part]": ...
    @property
    def only_part(self) -> "Part | None": ...


class Part(Protocol):
    """What a consumer has of one source: the core's ``Subscription``, or its stand-in for another shard.

    Attributes:
        number: names it in its session. A number is never used again there.
        writer: the door's: what all its messages begin with, or what writes them.
        partition: of a member, which one; ``RETRIES`` for its retries. None of all others.
        epoch: of a member, the number of the assignment; 0 of all others.
        in_flight: what was given and is not settled, by sequence; of another shard only if the consumer is tracked.
    """

    number: int
    writer: Any
    in_flight: dict[int, Message]

    @property
    def partition(self) -> int | None: ...
    @property
    def epoch(self) -> int: ...

    @property
    def consumer(self) -> Consumer:
        """Whose it is."""

    @property
    def destination(self) -> Destination:
        """Where its messages were sent; of a durable subscription the topic."""

    def acknowledge(self, sequences: list[int]) -> list[int]:
        """Settle a run of messages as done; those that are known at once not to be in flight."""


class MemberPart(Part, Protocol):
    """What a member of a group has of a partition, or of the retries."""

    def origin(self, message: Message) -> tuple[int, int]:
        """The partition and the offset of a message, of the origin of a retry."""


class These(NamedTuple):
    """Messages of a part, by their sequences."""

    part: Part
    sequences: list[int]


class UpTo(NamedTuple):
    """All messages of a consumer up to one, in the order in which it was given them, over all its parts.

    Of a consumer with several parts that does not have the first one, they are the last ``expected`` ones. A range that
    begins with what the client had before a failover (DELIVERED of one message without a first one) has all of that.

    Attributes:
        part: what the last one came from.
        first: the first one; None for the oldest in flight.
        expected: how many they are; 0 if that is not said. Of one part it is checked: for ACCEPTED, in no transaction.
        first_part: what the first one came from; None for the same part, and of a list for one that is not known.
    """

    part: Part
    first: int | None
    last: int
    expected: int = 0
    first_part: Part | None = None


class Handle(NamedTuple):
    """Messages of a member, by names that outlive its connection.

    Attributes:
        first: the first offset, or sequence of a retry.
        last: the last one.
        partition: where they are; ``RETRIES`` for retries.
        epoch: of the assignment they were given under.
    """

    first: int
    last: int
    partition: int
    epoch: int


class Handles(NamedTuple):
    """Messages of a member. ``answered`` gets the outcome of each: done, late, stale, fenced or gone.

    If the consumer acknowledges cumulatively (CLIENT), each is about all that was given before, too. An epoch below 0
    is that of a part which is gone.
    """

    consumer: Consumer
    handles: list[Handle]


What = These | UpTo | Handles


class SettlementKind(Enum):
    """What becomes of messages."""

    ACCEPTED = auto()  # acknowledged; what a rollback gave back counts too
    REJECTED = auto()  # failed: again by policy, or after a delay
    DEAD = auto()  # a dead letter now
    POISON = auto()  # a dead letter; in a dead letter queue it stays, failed
    RELEASED = auto()  # given back unseen: nothing is counted, it has its old place
    DELIVERED = auto()  # takes no credit now
    REDELIVERED = auto()  # nothing
    UNMATCHED = auto()  # acknowledged and not counted: the client's selector did not want it
    EXPIRED = auto()  # a dead letter, expired at the client
    UNWRITABLE = auto()  # the door could not write it
    EXTEND = auto()  # the lease ends later


class Settlement(NamedTuple):
    """What becomes of messages.

    Attributes:
        delay_ms: REJECTED: after how long they are delivered again; None for what the policy says. EXTEND: how long the
            lease is, from now.
    """

    kind: SettlementKind
    delay_ms: int | None = None
    cause: str = ""


ACCEPTED = Settlement(SettlementKind.ACCEPTED)
RELEASED = Settlement(SettlementKind.RELEASED)
DELIVERED = Settlement(SettlementKind.DELIVERED)


class Step(Enum):
    """How a transaction goes on. COMMIT of a branch is its commit in one phase."""

    COMMIT = auto()
    ROLLBACK = auto()
    ROLLBACK_KEEP = auto()  # what was acknowledged stays in flight: the client delivers it again
    PREPARE = auto()
    COMMIT_PREPARED = auto()
    FORGET = auto()
    END = auto()


PREPARED, READ_ONLY = 0, 3
"""What ``answered`` gets for PREPARE (XA's codes)."""


class LeavingKind(Enum):
    """How a session ends."""

    CLEAN = auto()  # nothing counts as failed
    LOST = auto()  # the oldest message in flight counts
    BLAMELESS = auto()  # the link or the owner was lost: nothing counts


class Leaving(NamedTuple):
    """How a session ends, and why, for operators."""

    kind: LeavingKind
    cause: str


class Seen(NamedTuple):
    """What the client of a consumer that goes has seen of its messages; the others are released.

    If the last one is not in flight, it was acknowledged, and with it all that was given before.

    Attributes:
        last: the last one that it has seen; None for none of them.
        part: what that one came from.
        is_alone: whether the consumer has acknowledged messages alone: then earlier ones may still be in flight.
    """

    is_known: bool = False
    last: int | None = None
    part: Part | None = None
    is_alone: bool = False


UNKNOWN = Seen()


class Session(Protocol):
    """A client's session.

    Attributes:
        writable: whether the door takes deliveries now; the door sets it.
        version: another one whenever destinations, rules or places have changed: the door forgets its routes.
        restricted: whether a send may have to wait now, or is limited in size: read once for each chunk of input.
        is_awaited: whether nothing more may be handed in until ``Door.go_on``: another shard has still to make a
            temporary destination, and what comes next might have an answer sent there. It is read behind ``temporary``
            and ``subscribe``.
    """

    name: str
    user: str
    client_id: str | None
    writable: bool

    @property
    def parts(self) -> Mapping[int, Part]: ...

    @property
    def is_awaited(self) -> bool: ...

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        """Those of the core that it has in this process, by number, for operators."""

    @property
    def version(self) -> int: ...

    @property
    def restricted(self) -> bool: ...

    def takes_input(self) -> None:
        """A chunk of input follows: sends that reach a target directly are this session's."""

    def took_input(self, sent: bool) -> None:
        """A chunk of input was taken: what its routes have in ``receipts`` is to be confirmed.

        Args:
            sent: whether messages were given to targets directly: if their commit fails, the session is told.
        """

    def drained(self) -> None:
        """The door takes deliveries again: it is ``writable``, and consumers may be given messages."""

    def recheck(self) -> Iterator[None]:
        """Rules have changed, or places: end what the client may not have any more, a piece at a time."""

    def confirm(self, token: Token) -> None:
        """Nothing is asked for but the token: it comes back when everything before is durable, at every shard."""

    def open(self, who: Opening, token: Token = None) -> bool:
        """The client introduces itself. False while its client id, or the shard that knows it, is waited for."""

    def route(self, destination: str, traits: Traits = PLAIN) -> Route:
        """Find where messages to a destination go; rights are asked, and the destination is created."""

    def accept(
        self, route: Route, content: bytes, how: Sending = USUAL, *, tx: Tx | None = None, token: Token = None
    ) -> bool:  # fmt: skip
        """Admit a message: the one place that does. ``content`` is whole, with the lines of its id and its time."""

    def subscribe(self, spec: SubscribeSpec, token: Token = None) -> Consumer:
        """A consumer comes."""

    def unsubscribe(self, consumer: Consumer, seen: Seen = UNKNOWN, token: Token = None) -> bool:
        """A consumer goes."""

    def credit(self, consumer: Consumer, prefetch: int) -> None:
        """How many messages may be in flight from now on: a window, which settling opens again."""

    def pull(self, consumer: Consumer, count: int, wait_ms: int) -> None:
        """So many more messages, once; it replaces the last pull. Its end is told to ``Door.pull_ended``.

        Args:
            count: 0 for none: the last pull is over at once.
            wait_ms: -1 for what is there now, 0 for ever, or so many milliseconds.
        """

    def settle(self, what: What, how: Settlement, *, tx: Tx | None = None, token: Token = None) -> bool:
        """Say what becomes of messages that were delivered."""

    def begin(self, tx: Tx, token: Token = None) -> bool:
        """Begin a transaction; of a known one nothing changes."""

    def end(self, tx: Tx, step: Step, token: Token = None) -> bool:
        """Take a transaction a step further. While a large one is gathered, it has to wait."""

    def spoil(self, tx: Tx, error: QuireError) -> None:
        """The door could not make a verb of what its client said in a transaction: it has failed, as by rule 6."""

    def temporary(self, kind: DestinationKind, name: str = "", token: Token = None) -> Address:
        """Make a temporary destination, which goes with the session. Without a name it is made up.

        The token comes when it is there.
        """

    def call(self, name: str, arguments: tuple[Any, ...], token: Token = None) -> bool:
        """Ask a service for something that is no verb (``CALLS`` of ``quire.sessions.session``)."""

    def leave(self, how: Leaving, token: Token = None) -> bool:
        """The client goes."""


class Door(Protocol):
    """What a protocol implements: what a session tells its client.

    Attributes:
        name: who the client is, for operators: the peer's address.
    """

    name: str

    @property
    def has_ended(self) -> bool | None:
        """Whether the client has ended the connection, though not all that came was read; None if that is not known."""

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        """Write messages; ``first`` if they are the first of their group for this consumer. Called once for a run."""

    def confirmed(self, tokens: list[Token]) -> None:
        """Everything before these is durable."""

    def answered(self, token: Token, result: Any) -> None:
        """A verb has a result."""

    def failed(self, token: Token | None, error: QuireError) -> None:
        """A verb has failed; without a token its client does not wait for it."""

    def part_added(self, part: Part) -> None:
        """A consumer has a part more. The door may set its ``writer``."""

    def part_gone(self, part: Part) -> None:
        """A consumer has a part less."""

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        """A pull is over; so many messages have not come."""

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        """A browser has been given all; so many could not be read."""

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        """Something has happened to a member."""

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        """The broker ends a consumer: it is slow, has no right any more, or its destination is deleted."""

    def ended(self, error: QuireError) -> None:
        """The session is over: its shard has moved, it was taken over, the broker stops."""

    def go_on(self) -> None:
        """What was not taken may be handed in again."""

    def flush(self) -> None:
        """Write what has gathered, in one write."""

    def discard(self) -> None:
        """Write nothing of what has gathered, and end: another broker may have given the same messages to others."""
