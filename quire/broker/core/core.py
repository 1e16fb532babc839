"""What every part of the broker needs of the core: the open commit, what is charged, who is woken, the time.

A destination holds this interface, and knows neither who runs the turns nor what else there is.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from quire.broker.core.commit import Commit, CommittedTransaction, Owner, Part
from quire.broker.core.flow import HoldCause, ProducerFlow
from quire.broker.core.limits import Limits
from quire.broker.core.services import Advisories, Directory, Ledger
from quire.broker.core.steps import Steps
from quire.broker.core.subscription import Departing, Session
from quire.broker.core.turn_dispatch import TurnDispatch
from quire.broker.core.turn_meter import TurnMeter
from quire.clock import Clock, WallClock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.spool import Spool
from quire.errors import QuireError
from quire.scheduler import Scheduler
from quire.settings import Policies, Settings
from quire.store.base import Store, StoredDestination

OPEN_BYTES = 4 << 20
"""More than this much not yet stored, and transports stop reading until the next commit."""

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
        self._unwritten: dict[Session, None] = {}

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

    def confirm(self, session: Session, receipts: list[bytes]) -> None:
        """Tell a session when everything up to now is durable."""
        self.open.receipts.append((session, receipts))
        self.open_bytes += sum([len(receipt) for receipt in receipts])  # they will be output
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

    def unwritten(self, session: Session) -> None:
        """A session has output to write at the end of the turn."""
        self._unwritten[session] = None
        self._ask_commit()

    def take_unwritten(self) -> dict[Session, None]:
        """The sessions that have output to write."""
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
