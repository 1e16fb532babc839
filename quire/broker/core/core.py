"""What every part of the broker needs of the core: the open commit, what is charged, who is woken, the time.

A destination holds this narrow interface, the ``Core``, and knows neither who runs the turns nor what else there is.
What a part needs of a service above it (transactions, the ledger, advisories) is a protocol here, and the assembly
hands the service in.

- A ``Commit`` is what has gathered since the last one, in a part for each destination, and who is informed when it is
  durable. All listeners are informed, each although another one fails.
- ``ProducerFlow`` holds producers: the input of a held one waits, its session reads no more from the socket, and
  other connections go on, so consumers can make the room that the producer waits for. Every wait has a cause, an age
  and a limit.
- ``Limits`` says how many destinations and stored subscriptions there may be, since each takes memory for as long as
  it is there. What the broker makes itself (dead letters, advisories, the ledger) is counted and never refused.
- ``DestinationLedger`` is what the ledger and a tracer are told of one destination. Without them nothing is asked.
"""

import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from quire.broker.core.subscription import Departing, Output, Session, Subscription
from quire.broker.core.turn import Steps, TurnDispatch, TurnMeter
from quire.clock import Clock, WallClock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.spool import Spool
from quire.destination import Destination
from quire.destination_pattern import Pattern
from quire.errors import ProducerHeld, QuireError, TooManyDestinations, TooManySubscriptions
from quire.ledger_block import Ids, LedgerEvent, Run, ids_of, ranges_of, sent_of
from quire.logs import event
from quire.message import Message
from quire.scheduler import Scheduler, Timer
from quire.settings import Policies, Policy, Settings
from quire.settings.keys import BrokerSettings
from quire.store.base import Store, StoredDestination, WriteBatch


class LedgerLane(Protocol):
    """Where the events of the ledger go."""

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""

    def note(self, run: Run) -> None:
        """Something happened that is written with the next commit."""


class DestinationLedger:
    """Notes events of one destination. A call is about many messages, and costs little more than for a single one.

    Args:
        subscriber: the durable subscription or the consumer group; empty if it is about the destination itself.
    """

    def __init__(self, ledger: LedgerLane, destination: str, subscriber: str = "", lane: int = 0) -> None:
        self._ledger = ledger
        self._destination = destination
        self._subscriber = subscriber
        self._lane = lane
        self._senders: list[tuple[str, int]] = []

    # Messages come.

    def sent(self, sender: Session | None) -> None:
        """A message joins the open commit."""
        name = "" if sender is None else sender.name
        senders = self._senders
        if senders and senders[-1][0] == name:
            senders[-1] = (name, senders[-1][1] + 1)
        else:
            senders.append((name, 1))

    def committing(self, messages: list[Message]) -> list[Run]:
        """The open commit ends; what it says is true once it is done."""
        senders, self._senders = self._senders, []
        if sum([count for _, count in senders]) != len(messages):
            senders = [("", len(messages))]
        runs, start, now = [], 0, self._ledger.now_ms()
        for name, count in senders:
            run = messages[start : start + count]
            start += count
            sequences = ranges_of([message.sequence for message in run])
            runs.append(self._run(LedgerEvent.COMMIT, now, name, sequences, ids=ids_of(run), sent=sent_of(run)))
        return runs

    # They go.

    def dispatched(self, subscription: Subscription, messages: list[Message]) -> None:
        """A consumer was given messages."""
        flagged = [message.sequence for message in messages if message.redelivered]
        self._note(LedgerEvent.DISPATCH, messages, _name(subscription), ranges_of(flagged))

    def acknowledged(self, messages: list[Message], subscription: Subscription | None = None) -> None:
        """A consumer is done with messages; of a topic, where each has its own, it is said which one."""
        self._note(LedgerEvent.ACKNOWLEDGE, messages, "" if subscription is None else _name(subscription))

    def came_back(self, messages: list[Message]) -> None:
        """Messages were not acknowledged."""
        self._note(LedgerEvent.REDELIVER, messages)

    def returned(self, messages: list[Message]) -> None:
        """Messages came back that no application has seen."""
        self._note(LedgerEvent.RETURN, messages)

    def ended(self, messages: list[Message], reason: str) -> None:
        """Messages have expired, or become dead letters."""
        self._note(LedgerEvent.EXPIRE if reason == "expired" else LedgerEvent.DEAD_LETTER, messages)

    def removed(self, messages: list[Message]) -> None:
        """An operator, or retention, removed messages."""
        self._note(LedgerEvent.REMOVE, messages)

    def _note(
        self, event: LedgerEvent, messages: list[Message], who: str = "", flagged: list[int] | None = None
    ) -> None:  # fmt: skip
        if messages:
            ranges = ranges_of([message.sequence for message in messages])
            self._ledger.note(self._run(event, self._ledger.now_ms(), who, ranges, flagged or []))

    def _run(
        self, event: LedgerEvent, time: int, who: str, ranges: list[int], flagged: list[int] | None = None,
        ids: Ids | None = None, sent: list[int] | None = None,
    ) -> Run:  # fmt: skip
        return Run(
            self._destination, event, time, who, self._subscriber, self._lane, ranges, flagged or [], ids or Ids(),
            sent or [],
        )  # fmt: skip


def _name(subscription: Subscription) -> str:
    return f"{subscription.session.name}/{subscription.id}"


class Advisories(Protocol):
    """Tells of what happens, on topics."""

    def destination_created(self, destination: Destination, *, temporary: bool = False) -> None:
        """A destination is there."""

    def destination_deleted(self, destination: Destination, *, temporary: bool = False) -> None:
        """A destination is gone."""

    def slow_consumer(self, subscription: Subscription) -> None:
        """A consumer does not keep up."""

    def watch(self, pattern: Pattern) -> None:
        """A consumer of a pattern of topics is there, and hears advisories that match."""

    def unwatch(self, pattern: Pattern) -> None:
        """It is gone."""

    def no_consumer(self, destination: Destination, policy: Policy, messages: list[Message]) -> None:
        """Messages came to a destination without consumers."""

    def tells_expired(self, destination: Destination, policy: Policy) -> bool:
        """Whether an advisory of expired messages would reach a consumer."""

    def expired(self, destination: Destination, policy: Policy, message: Message) -> None:
        """A message has expired."""

    def dead_lettered(
        self, destination: Destination, policy: Policy, message: Message, address: Destination, cause: str
    ) -> None:
        """A message became a dead letter."""

    def message_discarded(self, subscription: Subscription, message: Message, discarded: int) -> None:
        """A consumer that does not keep up loses a message."""


class Ledger(LedgerLane, Protocol):
    """Says what becomes of messages."""

    def of(self, destination: Destination, *, subscriber: str = "", lane: int = 0) -> DestinationLedger | None:
        """What is to be told of a destination; None if neither its policy nor a tracer asks for it."""

    def is_kept(self, destination: Destination) -> bool:
        """Whether the policy of a destination asks for the ledger."""


class Target(Protocol):
    """What takes messages: a queue, a topic, the schedule, several of them."""

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message.

        Args:
            expiration: milliseconds since the epoch; 0 for never.
            persistent: whether it must survive the broker.
        """

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here."""

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Any:
        """As ``send``, for what is given up elsewhere in this commit: if it fails, both are in the next one."""


class Directory(Protocol):
    """Finds destinations by name; they are created on first use."""

    def queue(self, name: str) -> Target:
        """The queue of a name."""

    def topic(self, name: str) -> Target:
        """The topic of a name."""


class Limits:
    """The limits of one broker.

    Attributes:
        max_destinations: how many destinations there may be.
        max_subscriptions: how many durable subscriptions, and groups by partition.
        group_partitions: how many groups and readers have, each of them counted by itself.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.max_destinations = settings.max_destinations
        self.max_subscriptions = settings.max_durable_subscriptions
        self._destinations: list[Callable[[], int]] = []
        self._subscriptions: list[Callable[[], int]] = []
        self.group_partitions = 0
        self._is_own_work = False

    def add_group_partitions(self, count: int) -> None:
        """Groups and readers have more partitions, or fewer, each of them counted by itself."""
        self.group_partitions += count

    def count_destinations(self, count: Callable[[], int]) -> None:
        """Count the destinations that one part of the broker has, too."""
        self._destinations.append(count)

    def count_subscriptions(self, count: Callable[[], int]) -> None:
        """Count the subscriptions that one part of the broker has, too."""
        self._subscriptions.append(count)

    @property
    def destinations(self) -> int:
        """How many there are: queues, topics, partitions of streams, temporary queues and topics."""
        return sum([count() for count in self._destinations])

    @property
    def subscriptions(self) -> int:
        """How many there are: durable subscriptions, and each group and reader once for each of its partitions."""
        return self.group_partitions + sum([count() for count in self._subscriptions])

    def check_destinations(self, more: int = 1) -> None:
        """Raises TooManyDestinations if there may be no more."""
        limit = self.max_destinations
        if not self._is_own_work and self.destinations + more > limit:
            text = f"there are {self.destinations} destinations, and there may be {limit}: broker.max_destinations"
            raise TooManyDestinations(text, destinations=self.destinations, limit=limit)

    def check_subscriptions(self, more: int = 1) -> None:
        """Raises TooManySubscriptions if there may be no more."""
        there, limit = self.subscriptions, self.max_subscriptions
        if not self._is_own_work and there + more > limit:
            what = "durable subscriptions, and groups by partition"
            text = f"there are {there} {what}, and there may be {limit}: broker.max_durable_subscriptions"
            raise TooManySubscriptions(text, subscriptions=there, limit=limit)

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """What the broker makes meanwhile is its own work, and is not refused."""
        before, self._is_own_work = self._is_own_work, True
        try:
            yield
        finally:
            self._is_own_work = before


class HoldCause(StrEnum):
    """Which limit a producer is over."""

    STORE = "store-limit"
    SPOOL = "spool-limit"
    STORE_DISK = "store-disk-limit"
    SPOOL_DISK = "spool-disk-limit"


@dataclass(slots=True)
class Hold:
    """One held producer.

    Attributes:
        session: who.
        cause: which limit.
        destination: where it wants to send.
        since: on the monotonic clock, in seconds.
        timer: ends the wait with an error.
    """

    session: Session
    cause: HoldCause
    destination: str
    since: float
    timer: Timer


class ProducerFlow:
    """The held producers.

    Args:
        limit: seconds a producer may be held.
        over: says whether a limit is exceeded now.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, limit: float, over: Callable[[HoldCause], bool]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._limit = limit
        self._over = over
        self.holds: dict[Session, Hold] = {}
        self.held_total = 0

    def hold(self, session: Session, cause: HoldCause, destination: str) -> None:
        """Hold a producer until there is room, or until its time is up."""
        self.held_total += 1
        timer = self._scheduler.call_later(self._limit, lambda: self._give_up(session))
        self.holds[session] = Hold(session, cause, destination, self._clock.monotonic(), timer)

    def forget(self, session: Session) -> None:
        """The session is gone."""
        if hold := self.holds.pop(session, None):
            hold.timer.cancel()

    def release(self) -> None:
        """Let producers go on whose limit is not exceeded any more, in the order they were held. Called once a turn."""
        for hold in list(self.holds.values()):
            if not self._over(hold.cause):
                self.forget(hold.session)
                hold.session.resume()

    def _give_up(self, session: Session) -> None:
        hold = self.holds.pop(session)
        text = f"no room to send to {hold.destination} for {self._limit:g} s: {hold.cause}"
        facts = {"cause": str(hold.cause), "destination": hold.destination}
        event("producer.refused", text, logging.WARNING, **facts)
        session.fail(ProducerHeld(text, **facts))


class Part(Protocol):
    """What concerns one owner of lanes: a queue, a topic, the schedule.

    Attributes:
        owner: who.
        listed: whether the broker knows that there is something here.
    """

    listed: bool

    @property
    def owner(self) -> "Owner":
        """Who."""

    @property
    def appends(self) -> list[Message]:
        """New messages, in ascending sequence."""


class Owner(Protocol):
    """Who has something in commits."""

    @property
    def ledger(self) -> DestinationLedger | None:
        """Where events of its messages are noted; None if they are not."""

    def fill(self, commit: "Commit") -> None:
        """Put what has gathered into a commit.

        Raises:
            StoreError: the spool took nothing.
        """

    def committed(self, part: Any) -> None:
        """A commit is done; ``part`` is what it had of this owner."""

    def commit_failed(self, part: Any, restored: set[int]) -> None:
        """A commit failed, nothing of it is stored.

        Args:
            restored: ``id`` of the messages whose removal is not to be tried again.
        """


Changes = TypeVar("Changes")


class MarksPart(Generic[Changes]):
    """What concerns an owner of marks in a commit. They are in its batch already; ``changes`` says what they mean."""

    __slots__ = ("appends", "changes", "listed", "owner")

    def __init__(self, owner: Owner, changes: Changes) -> None:
        self.owner = owner
        self.changes = changes
        self.appends: list[Message] = []
        self.listed = False


class MarksOwner(ABC, Generic[Changes]):
    """Who has marks in commits, and no lanes.

    Args:
        none: makes what says that nothing has changed.
    """

    ledger = None

    def __init__(self, core: "Core", none: Callable[[], Changes]) -> None:
        self._core = core
        self._none = none
        self.part = MarksPart(self, none())

    def fill(self, commit: "Commit") -> None:
        commit.parts[self] = self.part
        self.part = MarksPart(self, self._none())

    @abstractmethod
    def committed(self, part: Any) -> None: ...

    @abstractmethod
    def commit_failed(self, part: Any, restored: set[int]) -> None: ...


class CommittedTransaction(Protocol):
    """A transaction in a commit.

    Attributes:
        settled: the messages it acknowledges, and where they are.
    """

    settled: Any


@dataclass(slots=True)
class Commit:
    """One commit of the broker.

    Attributes:
        number: commits are numbered from 1, in their order.
        batch: what the store writes; empty when nothing has to be stored.
        parts: what concerns queues, topics, the schedule: one part of each, in the order they came.
        receipts: the sessions that asked for them, and which.
        senders: the sessions that sent persistent messages or committed transactions in it.
        transactions: the transactions in it.
        calls: to be made when it is done, or has failed.
        size: sizes of its messages, in bytes.
        hurried: whether anything waits for it that is not in the other lists.
    """

    number: int
    batch: WriteBatch = field(default_factory=WriteBatch)
    parts: dict[Owner, Part] = field(default_factory=dict)
    receipts: list[tuple[Session, list[Any]]] = field(default_factory=list)
    senders: dict[Session, None] = field(default_factory=dict)
    transactions: list["CommittedTransaction"] = field(default_factory=list)
    calls: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    hurried: bool = False

    def forget(self, owner: object) -> None:
        """An owner is deleted: it is not informed of its part. What the writer has of that is written."""
        self.parts.pop(owner, None)  # type: ignore[call-overload]
        for transaction in self.transactions:
            transaction.settled = [settled for settled in transaction.settled if settled[0] is not owner]

    @property
    def is_urgent(self) -> bool:
        """Whether a client waits for it: a sender, a consumer of what was sent, one that asked for a receipt."""
        return bool(self.receipts or self.senders or self.calls or self.hurried or self.batch)


class Announcement:
    """Calls that are made one after the other, whatever any of them raises."""

    def __init__(self) -> None:
        self._failures: list[Exception] = []

    def tell(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call."""
        try:
            call(*arguments)
        except Exception as failure:
            self._failures.append(failure)

    def end(self) -> None:
        """All calls are made: raise what some of them raised."""
        if self._failures:
            raise ExceptionGroup("some listeners failed to take the result of a commit", self._failures)


OPEN_BYTES = 4 << 20
"""More than this much not yet stored, and transports stop reading until the next commit."""

RECEIPT = 100
"""What a receipt that is not encoded yet counts as, in bytes."""

OPEN_PARTS = 1000
"""The same if the open commit concerns more destinations than so many: each takes its time when it begins and ends."""


STEADY = "steady-time"
"""The mark with the steady time of the last delay that was stored: after a restart none waits longer than it was to."""


class Core:
    """The core.

    Attributes:
        wall: what is made of a wall clock that may be set.
        memory: the root of the memory tree.
        meter: measures how long the event loop is busy.
        dispatch: the part of a turn that gives out messages.
        steps: work that is too large for one turn.
        limits: how many destinations and stored subscriptions there may be.
        flow: the held producers.
        advisories: tells of what happens, on topics.
        directory: finds destinations by name.
        ledger: says what becomes of messages, where a policy asks for it.
        stored_bytes: sizes of all messages in all destinations.
        open_bytes: sizes of the messages and receipts in the open commit.
        transaction_bytes: sizes of the messages in open transactions.
        staged_bytes: sizes of the messages that bulk writers have staged.
        partial_bytes: what clients have under way: frames that are not whole, bodies of requests until they are done,
            answers until they are read; at the most ``partial_limit``.
        open: the open commit.
        committing: the commit under way.
        committing_since: since when, on the monotonic clock.
        commits_done: the number of the last commit that ended.
        ended: how many connections and destinations have ended.
        leaving: the subscriptions that are over, and have not left their destinations yet.
        sender: whose sends are being taken; None outside of a session's input.
        store_error: why the store refuses writes; None while it takes them.
        low_disks: the disks that are low, by the cause for which producers are held.
        id_prefix: how the ids of new messages begin, as content has it.
        random: for collision avoidance.
    """

    __slots__ = (
        "_call_soon", "_ids", "_turn_asked", "_turn_includes", "_unwritten", "advisories", "clock", "commits_done",
        "committing", "committing_since", "directory", "dispatch", "ended", "flow", "id_prefix", "leaving", "ledger",
        "limits", "low_disks", "memory", "meter", "open", "open_bytes", "partial_bytes", "partial_limit", "random",
        "scheduler", "sender", "settings", "spool", "staged_bytes", "steps", "store", "store_error", "stored_bytes",
        "transaction_bytes", "wall",
    )  # fmt: skip

    advisories: Advisories
    directory: Directory
    ledger: Ledger

    def __init__(
        self, settings: Settings, store: Store, spool: Spool, clock: Clock, scheduler: Scheduler,
        call_soon: Callable[[], None],
    ) -> None:  # fmt: skip
        self.settings = settings
        self.store = store
        self.spool = spool
        self.clock = clock
        self.wall = WallClock(clock, int(store.mark(STEADY) or b"0"))
        self.scheduler = scheduler
        self.meter = TurnMeter(clock)
        self.memory = MemoryUsage(settings.memory.limit)
        self.dispatch = TurnDispatch(self.meter, self.memory, self.ask_turn)
        self.steps = Steps(clock, scheduler, self.meter, self)
        self.limits = Limits(settings.broker)
        self.flow = ProducerFlow(clock, scheduler, settings.producer.hold_limit, self.is_over)
        self.stored_bytes = self.open_bytes = self.transaction_bytes = self.staged_bytes = self.partial_bytes = 0
        self.partial_limit = settings.memory.limit + max(settings.stomp.max_body, settings.openwire.max_frame_size)
        self.open = Commit(1)
        self.committing: Commit | None = None
        self.committing_since = 0.0
        self.commits_done = self.ended = 0
        self.sender: Session | None = None
        self.leaving: dict[Departing, None] = {}
        self.store_error: QuireError | None = None
        self.low_disks: set[HoldCause] = set()
        self.id_prefix = rb"message-id:ID\c%s-%d-" % (secrets.token_hex(4).encode(), clock.now_ms())
        self.random = Random()  # noqa: S311 (for spreading delays, not for secrets)
        self._ids = 0
        self._call_soon = call_soon
        self._turn_asked = self._turn_includes = False
        self._unwritten: dict[Output, None] = {}

    def connect(self, directory: Directory, advisories: Advisories, ledger: Ledger) -> None:
        """The services above the core are there."""
        self.directory, self.advisories, self.ledger = directory, advisories, ledger

    def next_message_id(self) -> int:
        """The number of a new message; its id is ``id_prefix`` and this number."""
        self._ids += 1
        return self._ids

    # The open commit.

    @property
    def open_commit_number(self) -> int:
        """The number that the open commit has."""
        return self.open.number

    @property
    def is_full(self) -> bool:
        """Whether the open commit has so much that nothing is read until it is done."""
        return self.open_bytes > OPEN_BYTES or len(self.open.parts) > OPEN_PARTS

    def list_part(self, part: Part) -> None:
        """A destination or the schedule has something for the open commit."""
        if not part.listed:
            part.listed = True
            self.open.parts[part.owner] = part
            self._ask_commit()

    def parts_of(self, owner: Owner) -> list[Any]:
        """What a destination or the schedule has in the commit under way."""
        part = self.committing.parts.get(owner) if self.committing else None
        return [] if part is None else [part]

    def list_transaction(self, transaction: CommittedTransaction) -> None:
        """A transaction is in the open commit."""
        self.open.transactions.append(transaction)

    def change_destination(self, id: int, stored: StoredDestination | None) -> None:
        """Store a destination with the open commit; None removes it with all its lanes."""
        self.open.batch.destinations[id] = stored
        self.ask_turn()

    def remove_records(self, lane: int, sequences: list[int]) -> None:
        """Remove records of a lane that no destination has any more, with the open commit; forgotten if that fails."""
        self.open.batch.lane(lane).removals += sequences
        self.ask_turn()

    def set_mark(self, key: str, value: bytes | None) -> None:
        """Store a mark with the open commit; None removes it. If the commit fails, it is stored with the next one."""
        self.open.batch.marks[key] = value
        self.ask_turn()

    def note_delay(self) -> None:
        """The open commit has the end of a delay, by the steady time: store with it when that began."""
        self.set_mark(STEADY, b"%d" % self.wall.steady_ms())

    def confirm(self, session: Session, receipts: list[Any]) -> None:
        """Tell a session when everything up to now is durable. Receipts are mostly its answers, encoded."""
        self.open.receipts.append((session, receipts))
        # They will be output.
        self.open_bytes += sum([len(receipt) if type(receipt) is bytes else RECEIPT for receipt in receipts])
        self._ask_commit()

    def sent(self, session: Session) -> None:
        """A session has put messages or a transaction into the open commit: it is told if the commit fails."""
        self.open.senders[session] = None

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make a call when the open commit is done, or has failed: transports go on reading, tools go on."""
        self.open.calls.append(call)
        self.ask_turn()

    def hurry(self) -> None:
        """The open commit is waited for."""
        self.open.hurried = True
        self.ask_turn()

    def forget(self, owner: object) -> None:
        """A destination is deleted: what it has in commits concerns it no more."""
        self.ended += 1
        self.open.forget(owner)
        if self.committing:
            self.committing.forget(owner)

    def close_commit(self) -> Commit:
        """The open commit, which is closed; the next one is open."""
        commit, self.open = self.open, Commit(self.open.number + 1)
        commit.size, self.open_bytes = self.open_bytes, 0
        return commit

    def commit_begins(self, commit: Commit) -> None:
        """A commit is under way."""
        self.committing, self.committing_since = commit, self.clock.monotonic()

    def commit_ends(self) -> None:
        """No commit is under way any more."""
        self.committing = None

    def commit_done(self, commit: Commit) -> None:
        """A commit has ended, well or not: all it has is told so now."""
        self.commits_done = commit.number

    # Turns.

    def ask_turn(self) -> None:
        """There is something to do: have a turn soon."""
        if not self._turn_asked:
            self._turn_asked = True
            self._call_soon()

    def _ask_commit(self) -> None:
        """The open commit has something, or there is output: the turn that runs sees to it, or another one is asked."""
        if not self._turn_includes and not self._turn_asked:
            self._turn_asked = True
            self._call_soon()

    def turn_begins(self) -> None:
        """The turn that was asked for is here."""
        self._turn_asked = False

    def includes(self, includes: bool) -> None:
        """Whether the turn that runs does what is asked for from now on: it has not come to its commit yet."""
        self._turn_includes = includes

    def hold_turns(self) -> bool:
        """A turn follows at once: what is asked for meanwhile asks for no other. ``release_turns`` takes the answer."""
        asked, self._turn_asked = self._turn_asked, True
        return asked

    def release_turns(self, asked: bool) -> None:
        """The turn that follows begins."""
        self._turn_asked = asked

    def unwritten(self, output: Output) -> None:
        """Something is to be written to a client at the end of the turn."""
        self._unwritten[output] = None
        self._ask_commit()

    def take_unwritten(self) -> dict[Output, None]:
        """The clients to whom something is to be written."""
        unwritten, self._unwritten = self._unwritten, {}
        return unwritten

    # What is charged, and what producers are held for.

    def charge_partial(self, size: int) -> bool:
        """Bytes that clients have under way are more, or fewer. Whether they grew beyond their limit."""
        self.partial_bytes += size
        return size > 0 and self.partial_bytes > self.partial_limit

    def connection_ended(self) -> None:
        """A connection is over."""
        self.ended += 1

    def takes_sends_of(self, session: Session | None) -> None:
        """From now on sends are taken of a session; None at the end of its input."""
        self.sender = session

    def number_send(self, producer: str, sequence: int | None) -> None:
        """Store a producer's number with the open commit; None forgets the producer."""
        self.open.batch.producers[producer] = sequence

    def departs(self, departing: Departing) -> None:
        """A subscription is over, and leaves its destinations in steps."""
        self.leaving[departing] = None

    def departed(self, departing: Departing) -> None:
        """It has left them all."""
        self.leaving.pop(departing, None)

    def refuse(self, error: QuireError | None) -> None:
        """The store refuses writes from now on; None: it takes them."""
        self.store_error = error

    def take_policies(self, policies: Policies) -> None:
        """Other policies apply from now on."""
        self.settings = replace(self.settings, policies=policies)

    def charge_stored(self, size: int) -> None:
        """The messages of destinations are larger, or smaller, by so many bytes."""
        self.stored_bytes += size

    def charge_open(self, size: int) -> None:
        """The open commit has so many bytes more."""
        self.open_bytes += size

    def charge_transaction(self, size: int) -> None:
        """The messages of open transactions are larger, or smaller, by so many bytes."""
        self.transaction_bytes += size

    def charge_staged(self, size: int) -> None:
        """What bulk writers have staged is larger, or smaller, by so many bytes."""
        self.staged_bytes += size

    def disk_is_low(self, cause: HoldCause, low: bool) -> None:
        """A disk is low from now on, or is not any more."""
        if low:
            self.low_disks.add(cause)
        else:
            self.low_disks.discard(cause)
            self.ask_turn()

    @property
    def is_restricted(self) -> bool:
        """Whether any send may have to wait or be refused now; asked once a chunk of input."""
        if self.store_error is not None or self.low_disks:
            return True
        return self.is_over(HoldCause.STORE) or self.is_over(HoldCause.SPOOL)

    def hold_cause(self, *, stored: bool) -> HoldCause | None:
        """Which limit keeps a producer from sending now; ``stored`` if its messages go into the store."""
        limit, disk = (HoldCause.STORE, HoldCause.STORE_DISK) if stored else (HoldCause.SPOOL, HoldCause.SPOOL_DISK)
        if self.is_over(limit):
            return limit
        return disk if self.is_over(disk) else None

    def is_over(self, cause: HoldCause) -> bool:
        """Whether a limit that producers are held for is exceeded."""
        if cause is HoldCause.STORE:
            under_way = self.committing.size if self.committing else 0
            taken = self.stored_bytes + self.staged_bytes + self.open_bytes + under_way + self.transaction_bytes
            return taken >= self.settings.store.limit
        if cause is HoldCause.SPOOL:
            return self.spool.used >= self.spool.limit
        if cause is HoldCause.SPOOL_DISK and not self.spool.used:
            return False  # they find memory, and a store that has filled the disk once leaves little there for ever
        return cause in self.low_disks


class Span(Protocol):
    """Something that takes its time."""

    def end(self, error: str = "") -> None:
        """It is over; with an error, if it failed."""


class Tracer(Protocol):
    """Makes spans. A call takes microseconds: what is made is exported elsewhere."""

    def now(self) -> int:
        """The time, in nanoseconds since the epoch."""

    def span(
        self, operation: str, destination: str, parent: str, message_id: str, since: int | None = None
    ) -> Span | None:  # fmt: skip
        """Begin a span.

        Args:
            operation: send, commit, deliver, acknowledge or dead-letter.
            destination: where the message is.
            parent: the header ``traceparent`` of the message, as W3C's Trace Context defines it.
            message_id: the message's id.
            since: when it began, in nanoseconds since the epoch; None for now.

        Returns:
            The span; None if there are too many.
        """
