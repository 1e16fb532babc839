"""A queue: what comes in, who gets it, what comes back.

Read it in the order of a message's life: ``send``, ``fill`` (into the commit), ``committed``; then in ``lane_dispatch``
``dispatch``, ``acknowledge`` (into a later commit), and ``redeliver`` for what is not acknowledged.
"""

from collections.abc import Sequence

from quire.broker.core.core import Core
from quire.broker.queues.lane import QueueLane, QueuePart, RecordRemoval
from quire.broker.queues.lane_dispatch import DamageReport, DispatchHandlers, LaneDispatch
from quire.broker.queues.parking import GROUP_ID
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination, DestinationKind
from quire.message import Message
from quire.store.base import Delivery, LaneState, StoredDestination

GROUPED = "grouped"
"""The setting of a stored queue that says whether messages of groups were ever sent to it."""


class Queue(LaneDispatch):
    """One queue.

    Args:
        new: whether it is made now: then nothing is read, and nothing can fail.
    """

    def __init__(self, core: Core, stored: StoredDestination, *, new: bool = False) -> None:
        self.stored = stored
        destination = Destination(DestinationKind(stored.kind), stored.name)
        policy = core.settings.policies.of(destination)
        memory = MemoryUsage(policy.memory_limit, core.memory)
        lanes = _lanes(core, stored, memory, new=new)
        settlement = RecordRemoval(lanes, core.spool, core.charge_stored)
        damage = DamageReport("queue.damaged", f"queue {stored.name}", {"queue": stored.name})
        super().__init__(
            core, destination, policy, core.ledger.of(destination), lanes, memory, settlement, damage,
            DispatchHandlers(appends_failed=self._refuse, relocate=self._move_to_tail),
        )  # fmt: skip
        self.group_header = GROUP_ID if GROUPED in stored.settings else None
        states = [lane.state for lane in lanes]
        self.depth, self.bytes = sum([s.count for s in states]), sum([s.bytes for s in states])
        self.paused = bool(stored.settings.get("paused"))
        self._next_sequence = max([s.next_sequence for s in states])

    def policy_changed(self) -> None:
        """Another policy applies from now on. Whether it is prioritized changes at the next start, if it is empty."""
        policy = self.core.settings.policies.of(self.destination)
        self.take_policy(policy, self.core.ledger.of(self.destination), policy.memory_limit)

    @property
    def next_sequence(self) -> int:
        """The sequence of the next message."""
        return self._next_sequence

    # A message comes in.

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message. It is in the queue when the open commit is done.

        Args:
            expiration: milliseconds since the epoch; 0 for never.
            persistent: whether it must survive the broker.
        """
        message = Message(self._next_sequence, content, expiration, priority, persistent)
        self._next_sequence += 1
        part = self.commits.open
        part.appends.append(message)
        if not persistent:
            part.mixed = True
            message.stored = not self.lane_of(message).cursor.keep(message)
            if expiration and not message.stored:
                self.note_expiry(expiration)
        self.core.charge_open(message.size)
        if self.ledger is not None:
            self.ledger.sent(self.core.sender)
        if not part.listed:
            self.core.list_part(part)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """As ``send``, for what another queue gives up in this commit. If it fails, both are in the next one."""
        self.send(content, expiration, priority, persistent)
        message = self.commits.open.appends[-1]
        self.commits.open.transferred.append(message)
        if not self.grouped and b"\nJMSXGroupID:" in content:
            self.expect_groups()
        return message

    def expect_groups(self) -> None:
        """A message of a group is about to be sent, for the first time: each message is looked at from now on."""
        if not self.grouped:
            self.stored = self.stored._replace(settings={**self.stored.settings, GROUPED: True})
            self.core.change_destination(self.stored.id, self.stored)
            self.group_header = GROUP_ID
            self.dispatcher.consumers_changed()

    def _refuse(self, part: QueuePart) -> None:
        """A commit failed: what was sent in it is refused, what was transferred comes again."""
        self._release([message for message in part.appends if not message.stored])
        spooled = [message for message in part.appends if message.stored and not message.persistent]
        self.commits.open.removals += spooled
        self._transfer_again(part.transferred)

    def _move_to_tail(self, messages: list[Message], cause: str) -> bool:
        """If the policy says so, append messages that failed anew, in the commit that removes them."""
        if self.policy.redelivery_at != "tail":
            return False
        self.remove_resident(messages)
        self._transfer_again(messages)
        return True

    def _transfer_again(self, messages: list[Message]) -> None:
        """Append messages anew, with what is known of their deliveries."""
        for message in messages:
            again = self.transfer(message.content, message.expiration, message.priority, message.persistent)
            if message.deliveries:
                again.deliveries, again.failures = message.deliveries, message.failures
                again.not_before, again.redelivered = message.not_before, True
                state = Delivery(again.deliveries, again.failures, again.not_before, "moved to the tail")
                self.note_delivery(again, state)


def _lanes(core: Core, stored: StoredDestination, memory: MemoryUsage, *, new: bool) -> Sequence[QueueLane]:
    """One lane; or ten, the highest priority first, each with a node of the memory tree so that each may flow."""
    ids, state = stored.lanes, LaneState() if new else None
    if len(ids) == 1:
        return [QueueLane(core, ids[0], memory, state=state)]
    nodes = [MemoryUsage(0, memory) for _ in ids]
    return [QueueLane(core, ids[p], nodes[p], p, state) for p in reversed(range(len(ids)))]
