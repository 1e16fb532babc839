"""A subscription to lanes that it does not own: those of a durable subscription's topic, a consumer group's partition.

There is one lane, or one for each priority of a topic; sequences are those of all lanes together, and so is what is
finished. It is dispatched as a queue is. What it has finished stands in an ack set instead of being removed. Ack set,
dispatch marks and delivery states are marks of the store, written in the same commits as everything else.
"""

from collections.abc import Sequence
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.queues.ack_set_settlement import AckSetSettlement, ProgressRecord, UnstoredSettlement
from quire.broker.queues.damage_report import DamageReport
from quire.broker.queues.dispatch_handlers import NO_HANDLERS, DispatchHandlers
from quire.broker.queues.dispatch_mark import NEVER_STORED, DispatchMark
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.lane_records import LaneKeys, LaneRecords
from quire.broker.queues.message_groups import MessageGroups
from quire.broker.queues.queue_lane import END, by_lane
from quire.broker.queues.subscription_lane import SubscriptionLane
from quire.cursors.ack_set import AckSet
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination
from quire.message import Message
from quire.selectors import Selector
from quire.settings import Policy
from quire.store.base import LaneState

EARLY_HOLES = 1000
"""With fewer holes in its ack set, a subscription looks at each message when it comes."""

HOLES_LIMIT = 10_000
"""With so many holes in its ack set, a subscription is given nothing new: about 100 bytes of memory each."""


class LaneOwner(Protocol):
    """Whose lanes they are: a topic, a stream's partition.

    Attributes:
        announced: the highest sequence of those commits that are done.
        destination: the address of their messages.
    """

    announced: int
    destination: Destination

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes' ids: one, or ten by priority."""

    @property
    def memory(self) -> MemoryUsage:
        """The destination's node of the memory tree."""

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that neither their owner nor a subscription needs: their records are removed."""


class LaneSubscription(LaneDispatch):
    """One subscription to lanes.

    Args:
        selector: which messages it wants; None for all.
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        progress: what else the store has of how far it has come.
        is_stored: whether it is there after a restart.

    Attributes:
        lanes: what it has of the lanes, those of higher priority first.
        full_of_holes_since: since when it is given nothing new because of its ack set, on the monotonic clock.
    """

    lanes: Sequence[SubscriptionLane]

    def __init__(
        self, core: Core, owner: LaneOwner, keys: LaneKeys, finished: AckSet, found: LaneState,
        progress: ProgressRecord, dispatch_marks: Sequence[int], selector: Selector | None, policy: Policy,
        ledger: DestinationLedger | None, damage: DamageReport, *, is_stored: bool = True,
        handlers: DispatchHandlers = NO_HANDLERS, groups_kind: type[MessageGroups] = MessageGroups,
    ) -> None:  # fmt: skip
        self.keys = keys
        self.finished = finished
        self.selector = selector
        self.full_of_holes_since: float | None = None
        self._lane_owner = owner
        memory = MemoryUsage(0, owner.memory)
        lanes = self._made_lanes(core, memory, dispatch_marks, is_stored=is_stored)
        kind = AckSetSettlement if is_stored else UnstoredSettlement
        self._settled = kind(owner, lanes, keys, finished, progress)
        super().__init__(
            core, owner.destination, policy, ledger, lanes, memory, self._settled, damage, handlers, groups_kind
        )
        self.depth, self.bytes = found.count, found.bytes

    def _made_lanes(
        self, core: Core, memory: MemoryUsage, dispatch_marks: Sequence[int], *, is_stored: bool
    ) -> list[SubscriptionLane]:
        """What is left of the owner's lanes; of ten each has a node of the memory tree so that each may flow."""
        ids, first = self._lane_owner.lanes, self._lane_owner.announced + 1
        lanes = []
        for index in reversed(range(len(ids))):
            keys, node, priority = self.keys, memory, 4
            if len(ids) > 1:
                keys, node, priority = keys.of_priority(index), MemoryUsage(0, memory), index
            state = LaneState(next_sequence=first, dispatch_mark=dispatch_marks[index])
            records = LaneRecords(core.store, ids[index], self.finished, keys, state, is_stored=is_stored)
            mark = DispatchMark(state.dispatch_mark if is_stored else NEVER_STORED)
            lanes.append(SubscriptionLane(core, self, records, node, priority, mark))
        return lanes

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences, in ascending order, that it needs no more; of a run that is done it asks once."""
        if sequences and self.finished.next_unfinished(sequences[0] - 1) > sequences[-1]:
            return sequences
        return [sequence for sequence in sequences if sequence in self.finished]

    def goes_up_to(self, lane: SubscriptionLane) -> int:
        """Up to which sequence a lane may be given now: with too many holes only what was left out.

        Of several lanes each gives what comes before that of all others then, so that holes are closed and not split.

        Raises:
            StoreError: it cannot be told what comes next. Nothing has changed.
        """
        if self.finished.holes < HOLES_LIMIT:
            return END
        others = [other for other in self.lanes if other is not lane and not self.dispatcher.next.is_held(other)]
        return min([self.finished.highest, *[other.first_waiting() - 1 for other in others]])

    def note_limit(self, limit: int) -> None:
        """Messages wait that may be given up to a sequence."""
        if limit != self.finished.highest:
            self.full_of_holes_since = None
        elif self.full_of_holes_since is None:
            self.full_of_holes_since = self.core.clock.monotonic()

    # Messages come.

    @property
    def looks_early(self) -> bool:
        """Whether messages that the selector does not match are finished when they come, not when they are due."""
        return self.selector is not None and self.finished.holes < EARLY_HOLES

    def _come(self, stored: list[Message], wanted: list[Message]) -> None:
        """Messages were committed. Those it wants, as far as can be told now, are in memory if there is room."""
        self.depth += len(stored)
        self.enqueued += len(stored)
        if wanted is not stored:
            self._pass_over(stored, wanted)
        for lane, own in by_lane(self.lanes, wanted) if wanted else ():
            lane.admit(own)
        self.wake()

    def _pass_over(self, stored: list[Message], wanted: list[Message]) -> None:
        """Finish what was committed and is not wanted. The cursor may come to it before that is stored."""
        kept = {message.sequence for message in wanted}
        unwanted = [message for message in stored if message.sequence not in kept]
        sequences = {message.sequence for message in unwanted}
        for lane in self.lanes:
            lane.cursor.excluded |= sequences
        self.commits.exclude(sequences)
        self.settle(unwanted)

    def _wants(self, message: Message) -> bool:
        return self.selector is None or self.selector.matches(message)

    def sift(self, run: list[Message]) -> list[Message]:
        """Of messages whose turn has come, those that it wants; the others are finished.

        What was delivered to it before is wanted, even if the selector asks about that.
        """
        if self.selector is None:
            return run
        wanted = [message for message in run if message.deliveries or self._wants(message)]
        if len(wanted) < len(run):
            passed = {message.sequence for message in wanted}
            unwanted = [message for message in run if message.sequence not in passed]
            self.remove_resident(unwanted)
        return wanted
