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
- Giving out messages is bounded in time, and a queue that is left out is first in the next turn (``TurnDispatch``):
  other connections are served only between two turns. Work that is too large for one turn, a purge say, is done in
  steps with a commit between two (``Steps``). ``TurnMeter`` measures how long the event loop is busy at a stretch.
"""

import logging
import math
import secrets
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from quire.broker.core.destination_ledger import DestinationLedger, LedgerLane
from quire.broker.core.subscription import Departing, Dispatching, Output, Session, Subscription
from quire.clock import Clock, WallClock
from quire.cursors.lane import MemoryUsage
from quire.cursors.spool import Spool
from quire.destination import Destination
from quire.destination_pattern import Pattern
from quire.errors import ProducerHeld, QuireError, StoreError, TooManyDestinations, TooManySubscriptions
from quire.logs import event
from quire.message import Message
from quire.scheduler import Scheduler, Timer
from quire.settings import Policies, Policy, Settings
from quire.settings.keys import BrokerSettings
from quire.store.base import Store, StoredDestination, WriteBatch


class Advisories(Protocol):
    def destination_created(self, destination: Destination, *, temporary: bool = False) -> None: ...

    def destination_deleted(self, destination: Destination, *, temporary: bool = False) -> None: ...

    def slow_consumer(self, subscription: Subscription) -> None: ...

    def watch(self, pattern: Pattern) -> None: ...

    def unwatch(self, pattern: Pattern) -> None: ...

    def no_consumer(self, destination: Destination, policy: Policy, messages: list[Message]) -> None: ...

    def tells_expired(self, destination: Destination, policy: Policy) -> bool: ...

    def expired(self, destination: Destination, policy: Policy, message: Message) -> None: ...

    def dead_lettered(
        self, destination: Destination, policy: Policy, message: Message, address: Destination, cause: str
    ) -> None: ...

    def message_discarded(self, subscription: Subscription, message: Message, discarded: int) -> None: ...


class Ledger(LedgerLane, Protocol):
    def of(self, destination: Destination, *, subscriber: str = "", lane: int = 0) -> DestinationLedger | None: ...

    def is_kept(self, destination: Destination) -> bool: ...


class Target(Protocol):
    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None: ...

    def expect_groups(self) -> None: ...

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Any:
        """As ``send``, for what is given up elsewhere in this commit: if it fails, both are in the next one."""


class Directory(Protocol):
    def queue(self, name: str) -> Target: ...

    def topic(self, name: str) -> Target: ...


class Limits:
    """The limits of one broker.

    Attributes:
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
        self.group_partitions += count

    def count_destinations(self, count: Callable[[], int]) -> None:
        self._destinations.append(count)

    def count_subscriptions(self, count: Callable[[], int]) -> None:
        self._subscriptions.append(count)

    @property
    def destinations(self) -> int:
        return sum([count() for count in self._destinations])

    @property
    def subscriptions(self) -> int:
        """How many there are: durable subscriptions, and each group and reader once for each of its partitions."""
        return self.group_partitions + sum([count() for count in self._subscriptions])

    def check_destinations(self, more: int = 1) -> None:
        limit = self.max_destinations
        if not self._is_own_work and self.destinations + more > limit:
            text = f"there are {self.destinations} destinations, and there may be {limit}: broker.max_destinations"
            raise TooManyDestinations(text, destinations=self.destinations, limit=limit)

    def check_subscriptions(self, more: int = 1) -> None:
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
    STORE = "store-limit"
    SPOOL = "spool-limit"
    STORE_DISK = "store-disk-limit"
    SPOOL_DISK = "spool-disk-limit"


@dataclass(slots=True)
class Hold:
    session: Session
    cause: HoldCause
    destination: str
    since: float
    timer: Timer


class ProducerFlow:
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
        listed: whether the broker knows that there is something here.
    """

    listed: bool

    @property
    def owner(self) -> "Owner": ...

    @property
    def appends(self) -> list[Message]: ...


class Owner(Protocol):
    @property
    def ledger(self) -> DestinationLedger | None: ...

    def fill(self, commit: "Commit") -> None:
        """Put what has gathered into a commit; ``StoreError`` if the spool takes nothing."""

    def committed(self, part: Any) -> None: ...

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
    settled: Any


@dataclass(slots=True)
class Commit:
    """One commit of the broker.

    Attributes:
        batch: what the store writes; empty when nothing has to be stored.
        senders: the sessions that sent persistent messages or committed transactions in it.
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
        try:
            call(*arguments)
        except Exception as failure:
            self._failures.append(failure)

    def end(self) -> None:
        if self._failures:
            raise ExceptionGroup("some listeners failed to take the result of a commit", self._failures)


OPEN_BYTES = 4 << 20
"""More than this much not yet stored, and transports stop reading until the next commit."""

RECEIPT = 100
"""What a receipt that is not encoded yet counts as, in bytes."""

OPEN_PARTS = 1000
"""The same if the open commit concerns more destinations than so many: each takes its time when it begins and ends."""


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The upper bounds of the histogram's buckets, in seconds; the last bucket has none."""

SHORT = BOUNDS[0]
"""Nearly all turns are not longer."""

SLOW = 0.05
"""A turn that takes longer than so many seconds is logged."""

LOG_INTERVAL = 1.0
"""For so many seconds after such a line there is no other one; the next one says how many were left out."""


class TurnMeter:
    """Measures turns: each call that the event loop makes.

    A turn has one part or several. It costs two readings of the clock, and one more for each further part.

    Attributes:
        counts: how many turns each bucket has: those up to its bound, and above the one before it.
        latest: the time of the last reading, on the monotonic clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.latest = 0.0
        self.now = clock.monotonic
        self._longest = 0.0
        self._began = 0.0
        self._longest_part = 0.0
        self._what = ""
        self._of: object = None
        self._next_line = 0.0
        self._left_out = 0

    def begin(self) -> None:
        self._began = self.latest = self.now()
        self._longest_part = -1.0

    def part(self, what: str, of: object = None) -> float:
        """A part of the turn is done; ``of``, what it was about, is written only if the turn was long."""
        now = self.now()
        took = now - self.latest
        self.latest = now
        if took > self._longest_part:
            self._longest_part, self._what, self._of = took, what, of
        return now

    def end(self, what: str, of: object = None) -> None:
        took = self.part(what, of) - self._began
        self.seconds += took
        if took <= SHORT:
            self.counts[0] += 1
        else:
            self.counts[bisect_left(BOUNDS, took)] += 1
        if took > self._longest:
            self._longest = took
        if took > SLOW:
            self._tell(took)
        self._of = None

    def take_longest(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    def _tell(self, took: float) -> None:
        if self.latest < self._next_line:
            self._left_out += 1
            return
        what = self._what if self._of is None else f"{self._what} {getattr(self._of, '__qualname__', self._of)}"
        text = f"a turn of the event loop took {took:.3f} s: {what} {self._longest_part:.3f} s"
        if self._left_out:
            text += f"; {self._left_out} more turns were long since the last such line"
        event(
            "loop.slow", text, logging.WARNING, seconds=round(took, 3), what=what,
            what_seconds=round(self._longest_part, 3), left_out=self._left_out,
        )  # fmt: skip
        self._next_line, self._left_out = self.latest + LOG_INTERVAL, 0


DISPATCH_BUDGET = 0.01
"""How long the queues that are ready may take in a turn, in seconds; what has begun ends."""

WAITERS_BUDGET = 0.005
"""How long those may take that waited for memory, or for credit, in seconds."""


class Lock:
    """The store's lock, as dispatch sees it.

    Attributes:
        until: for how long it is sure that no other broker has the store, on the monotonic clock.
    """

    until = math.inf


class Resident(Protocol):
    def give_up_memory(self) -> bool: ...


class Creditor(Protocol):
    def serve_waiting(self) -> None: ...


class TurnDispatch:
    """Dispatch, a turn at a time.

    Attributes:
        watched: those that had something to dispatch since consumers were last looked at.
        lock: the store's lock: messages are given out while it is sure.
        has_given: whether messages of a lane were given out that are not written yet.
    """

    def __init__(self, meter: TurnMeter, memory: MemoryUsage, ask_turn: Callable[[], None]) -> None:
        self.ready: dict[Dispatching, None] = {}
        self.with_credit: dict[Creditor, None] = {}
        self.watched: dict[Dispatching, None] = {}
        self.idle_residents: OrderedDict[Resident, None] = OrderedDict()
        self.lock: Lock = Lock()
        self.has_given = False
        self._meter = meter
        self._memory = memory
        self._ask_turn = ask_turn
        self._ends = math.inf

    def wake(self, source: Dispatching) -> None:
        self.ready[source] = None
        self._ask_turn()

    def credit(self, whole: Creditor) -> None:
        self.with_credit[whole] = None
        self._ask_turn()

    def watch(self, source: Dispatching) -> None:
        self.watched[source] = None

    def take_watched(self) -> dict[Dispatching, None]:
        watched, self.watched = self.watched, {}
        return watched

    def idle(self, queue: Resident) -> None:
        self.idle_residents[queue] = None

    def rest(self, source: Dispatching) -> None:
        self.ready.pop(source, None)

    def forget(self, source: Dispatching) -> None:
        self.ready.pop(source, None)
        self.watched.pop(source, None)
        self.idle_residents.pop(source, None)  # type: ignore[call-overload]

    @property
    def is_suspended(self) -> bool:
        """Whether nothing may be given out now: another broker may have the store, and give out the same."""
        return self._meter.latest >= self.lock.until

    def go_on(self) -> None:
        """The lock is sure: what could not be given out while it was not is served in the next turn."""
        if self.ready or self.with_credit or self._memory.is_waited_for:
            self._ask_turn()

    def gave(self) -> None:
        self.has_given = True

    def has_overrun(self) -> bool:
        """Whether messages were given out in time and the time is over before they are written. Asked before that."""
        given, self.has_given = self.has_given, False
        return given and self._meter.now() >= self.lock.until

    @property
    def is_over(self) -> bool:
        return self._meter.now() >= self._ends

    def relieve(self) -> None:
        """While a cursor waits for memory: queues without consumers give theirs up (rule 8)."""
        while self.idle_residents and self._memory.is_waited_for:
            queue, _ = self.idle_residents.popitem(last=False)
            try:
                if queue.give_up_memory():
                    return
            except StoreError as error:
                event("spool.failed", f"an idle queue keeps its memory: {error}", logging.WARNING, code=error.code)

    def wake_refused(self) -> None:
        if not self._memory.is_waited_for:
            return
        self._begin(WAITERS_BUDGET)
        if self._memory.wake(lambda: self.is_over):
            self._ask_turn()
        self._ends = math.inf
        self._meter.part("what waited for memory")

    def run(self) -> None:
        """Give out messages: first to those that found no memory, then for new credit, then what queues have ready."""
        if self.is_suspended:
            return
        if self._memory.is_waited_for:
            self.relieve()
            self.wake_refused()  # first, or a busy queue would take what a waiting one was promised
        if self.with_credit:
            self._serve_credit()
        if self.ready:
            self._serve_ready()
        if self.ready or self.with_credit:
            self._ask_turn()

    def _serve_credit(self) -> None:
        self._begin(WAITERS_BUDGET)
        wholes, self.with_credit = list(self.with_credit), {}
        for number, whole in enumerate(wholes):
            if number and self.is_over:
                self.with_credit = {**dict.fromkeys(wholes[number:]), **self.with_credit}
                break
            whole.serve_waiting()
        self._ends = math.inf

    def _serve_ready(self) -> None:
        self._begin(DISPATCH_BUDGET)
        ready, self.ready = list(self.ready), {}
        for number, queue in enumerate(ready):
            if number and self.is_over:
                self.ready = {**dict.fromkeys(ready[number:]), **self.ready}
                break
            self.serve(queue)
        self._ends = math.inf

    def _begin(self, seconds: float) -> None:
        self._ends = self._meter.latest + seconds

    def serve(self, queue: Dispatching) -> None:
        """Have a queue give out what it can now; from now on its consumers are looked at whether they keep up."""
        self.watched[queue] = None
        queue.dispatch()
        self._meter.part("dispatch of", queue.destination)


BUDGET = 0.01
"""How long the steps of one turn may take together, in seconds; a step that has begun ends."""

RETRY = 1.0
"""How many seconds after a failed read a step is tried again."""

Step = Callable[[], bool]
"""One piece of work, bounded by a number of records and of bytes. It says whether there is more to do.

It reads before it changes anything: after a ``StoreError`` it is called again.
"""


class Steps:
    """All work in steps of a broker, each piece in its turn.

    Attributes:
        storing: the work whose next step has to see what the last one has stored.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, meter: TurnMeter, core: "Core") -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._meter = meter
        self._core = core
        self.storing: deque[tuple[Step, str]] = deque()
        self.unstored: deque[tuple[Step, str]] = deque()
        self._is_waiting = self._waits_for_room = False
        self._failing: set[str] = set()

    def add(self, step: Step, name: str, *, stores: bool = True) -> None:
        """Call a step again and again until it says that there is no more to do.

        Args:
            stores: whether the next step has to see what the last one has stored. Otherwise it need not wait for the
                commit, and it is taken while the store refuses commits too.
        """
        (self.storing if stores else self.unstored).append((step, name))
        self._core.ask_turn()

    def run(self) -> None:
        """Take one step of each piece of work, as far as the budget reaches; the others are first in the next turn."""
        if self.unstored and not self._waits_for_room:
            self._round(self.unstored, stores=False)
            if self.unstored:
                self._ask_turn()
        if not self.storing or self._is_waiting:
            return
        if self._core.store_error is not None:  # what the failed commit had is not there yet
            self._wait_a_while()
            return
        self._round(self.storing, stores=True)
        if self.storing:
            self._is_waiting = True
            self._core.after_commit(self._go_on)

    def _ask_turn(self) -> None:
        """Go on in the next turn; behind the open commit if that has much. While the store fails, it gathers all."""
        if self._core.is_full and self._core.store_error is None:
            self._waits_for_room = True
            self._core.after_commit(self._has_room)
        else:
            self._core.ask_turn()

    def _has_room(self) -> None:
        self._waits_for_room = False
        self._core.ask_turn()

    def _round(self, work: deque[tuple[Step, str]], *, stores: bool) -> None:
        end = self._clock.monotonic() + BUDGET
        for _ in range(len(work)):
            step, name = work.popleft()
            if self._take(step, name, stores=stores):
                work.append((step, name))
            if self._meter.part(name) >= end:
                break

    def _take(self, step: Step, name: str, *, stores: bool) -> bool:
        try:
            more = step()
        except StoreError as error:
            if name not in self._failing:
                self._failing.add(name)
                text = f"{name} waits until the store can be read: {error}"
                event("store.unreadable", text, logging.WARNING, code=error.code)
            self._scheduler.call_later(RETRY, lambda: self.add(step, name, stores=stores))
            return False
        self._failing.discard(name)
        return more

    def _wait_a_while(self) -> None:
        self._is_waiting = True
        self._scheduler.call_later(RETRY, self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        self._core.ask_turn()


STEADY = "steady-time"
"""The mark with the steady time of the last delay that was stored: after a restart none waits longer than it was to."""


class Core:
    """The core.

    Attributes:
        open_bytes: sizes of the messages and receipts in the open commit.
        staged_bytes: sizes of the messages that bulk writers have staged.
        partial_bytes: what clients have under way: frames that are not whole, bodies of requests until they are done,
            answers until they are read; at the most ``partial_limit``.
        commits_done: the number of the last commit that ended.
        ended: how many connections and destinations have ended.
        leaving: the subscriptions that are over, and have not left their destinations yet.
        sender: whose sends are being taken; None outside of a session's input.
        store_error: why the store refuses writes; None while it takes them.
        low_disks: the disks that are low, by the cause for which producers are held.
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
        self.directory, self.advisories, self.ledger = directory, advisories, ledger

    def next_message_id(self) -> int:
        self._ids += 1
        return self._ids

    # The open commit.

    @property
    def open_commit_number(self) -> int:
        return self.open.number

    @property
    def is_full(self) -> bool:
        return self.open_bytes > OPEN_BYTES or len(self.open.parts) > OPEN_PARTS

    def list_part(self, part: Part) -> None:
        if not part.listed:
            part.listed = True
            self.open.parts[part.owner] = part
            self._ask_commit()

    def parts_of(self, owner: Owner) -> list[Any]:
        part = self.committing.parts.get(owner) if self.committing else None
        return [] if part is None else [part]

    def list_transaction(self, transaction: CommittedTransaction) -> None:
        self.open.transactions.append(transaction)

    def change_destination(self, id: int, stored: StoredDestination | None) -> None:
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
        self.open.senders[session] = None

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make a call when the open commit is done, or has failed: transports go on reading, tools go on."""
        self.open.calls.append(call)
        self.ask_turn()

    def hurry(self) -> None:
        self.open.hurried = True
        self.ask_turn()

    def forget(self, owner: object) -> None:
        """A destination is deleted: what it has in commits concerns it no more."""
        self.ended += 1
        self.open.forget(owner)
        if self.committing:
            self.committing.forget(owner)

    def close_commit(self) -> Commit:
        commit, self.open = self.open, Commit(self.open.number + 1)
        commit.size, self.open_bytes = self.open_bytes, 0
        return commit

    def commit_begins(self, commit: Commit) -> None:
        self.committing, self.committing_since = commit, self.clock.monotonic()

    def commit_ends(self) -> None:
        self.committing = None

    def commit_done(self, commit: Commit) -> None:
        self.commits_done = commit.number

    # Turns.

    def ask_turn(self) -> None:
        if not self._turn_asked:
            self._turn_asked = True
            self._call_soon()

    def _ask_commit(self) -> None:
        """The open commit has something, or there is output: the turn that runs sees to it, or another one is asked."""
        if not self._turn_includes and not self._turn_asked:
            self._turn_asked = True
            self._call_soon()

    def turn_begins(self) -> None:
        self._turn_asked = False

    def includes(self, includes: bool) -> None:
        """Whether the turn that runs does what is asked for from now on: it has not come to its commit yet."""
        self._turn_includes = includes

    def hold_turns(self) -> bool:
        """A turn follows at once: what is asked for meanwhile asks for no other. ``release_turns`` takes the answer."""
        asked, self._turn_asked = self._turn_asked, True
        return asked

    def release_turns(self, asked: bool) -> None:
        self._turn_asked = asked

    def unwritten(self, output: Output) -> None:
        self._unwritten[output] = None
        self._ask_commit()

    def take_unwritten(self) -> dict[Output, None]:
        unwritten, self._unwritten = self._unwritten, {}
        return unwritten

    # What is charged, and what producers are held for.

    def charge_partial(self, size: int) -> bool:
        """Bytes that clients have under way are more, or fewer. Whether they grew beyond their limit."""
        self.partial_bytes += size
        return size > 0 and self.partial_bytes > self.partial_limit

    def connection_ended(self) -> None:
        self.ended += 1

    def takes_sends_of(self, session: Session | None) -> None:
        """From now on sends are taken of a session; None at the end of its input."""
        self.sender = session

    def number_send(self, producer: str, sequence: int | None) -> None:
        """Store a producer's number with the open commit; None forgets the producer."""
        self.open.batch.producers[producer] = sequence

    def departs(self, departing: Departing) -> None:
        self.leaving[departing] = None

    def departed(self, departing: Departing) -> None:
        self.leaving.pop(departing, None)

    def refuse(self, error: QuireError | None) -> None:
        """The store refuses writes from now on; None: it takes them."""
        self.store_error = error

    def take_policies(self, policies: Policies) -> None:
        self.settings = replace(self.settings, policies=policies)

    def charge_stored(self, size: int) -> None:
        self.stored_bytes += size

    def charge_open(self, size: int) -> None:
        self.open_bytes += size

    def charge_transaction(self, size: int) -> None:
        self.transaction_bytes += size

    def charge_staged(self, size: int) -> None:
        self.staged_bytes += size

    def disk_is_low(self, cause: HoldCause, low: bool) -> None:
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
    def end(self, error: str = "") -> None: ...


class Tracer(Protocol):
    def now(self) -> int: ...

    def span(
        self, operation: str, destination: str, parent: str, message_id: str, since: int | None = None
    ) -> Span | None:  # fmt: skip
        """Begin a span.

        Args:
            parent: the header ``traceparent`` of the message, as W3C's Trace Context defines it.
            since: when it began, in nanoseconds since the epoch; None for now.
        """
