"""What becomes of messages that were delivered: which ones a client means, and what is done with them.

Acknowledgements are those of JMS brokers, of STOMP and of members of groups. What a member says too late is no error:
the message may have been taken from it a moment ago. Each of its handles gets its own outcome, decided as a lease is:
the member has the message; the lease has ended and no other member has it; another member has it; the message is done;
the partition was given out anew.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, StrEnum, auto
from typing import Any, TypeVar, cast

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import DUPLICATE, is_dead_letter_queue
from quire.broker.streams.groups.group import Group, GroupPartition, MemberSubscription
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.transactions.transaction import Transaction
from quire.errors import InvalidArgument, InvalidHeader, UnknownMessage
from quire.logs import event
from quire.sessions.base import Handle, Handles, Settlement, SettlementKind, These, Tx, UpTo
from quire.sessions.consumers import ConsumingSession, LocalConsumer, MemberConsumer
from quire.sessions.transactions import is_branch

Kind = SettlementKind

WAITS = frozenset({Kind.ACCEPTED, Kind.REJECTED, Kind.DEAD, Kind.UNMATCHED})
"""What waits for the commit of a transaction; all else takes effect at once."""

REJECTIONS = frozenset({Kind.REJECTED, Kind.DEAD, Kind.EXTEND})
"""What is not for messages of a browser."""

REJECTED_CAUSE = "rejected by the consumer"

Found = list[tuple[Subscription, list[int]]]
"""Messages, by part."""

Key = TypeVar("Key")


def run_of(given: Mapping[Key, Any], had: dict[Key, None], first: Key | None, last: Key, count: int) -> list[Key]:
    """The messages that a range is about, in the order in which the client had them.

    A client that has failed over says of each message that its application had before that it has it again. It had
    these before all others, in whatever order they came now: a range that begins with one of them has all of them.

    Args:
        given: what is in flight, in the order in which it was given.
        had: what the client had before.
        first: the first one; None for the oldest, or if a count is said, for so many.
        last: the last one; it is in flight.
        count: how many there are, if nothing is known of the first one; 0 if that is not said.

    Returns:
        The messages; none if the first one was given after the last one.
    """
    if first is not None and first in had:
        both = [key for key in had if key in given]
        if last in had:
            return both
        return both + [key for key in up_to(given, last) if key not in had]
    if first == last:
        return [last]
    begins = first is not None and first in given
    if not begins and count == 0:
        return up_to(given, last)
    found: list[Key] = []
    for key in reversed(cast("dict[Key, Any]", given)):
        if found or key == last:
            found.append(key)
            if key == first or (not begins and len(found) >= count):
                break
    found.reverse()
    return [] if begins and found[0] != first else found


def up_to(given: Mapping[Key, Any], last: Key) -> list[Key]:
    covered = []
    for key in given:
        covered.append(key)
        if key == last:
            break
    return covered


class Outcome(StrEnum):
    """What became of a handle."""

    DONE = "done"
    """What was asked for, or it was so already."""
    LATE = "late"
    """The lease had ended, and no other member had the message: an acknowledgement counts, a rejection is needless."""
    STALE = "stale"
    """The member has the message no more; an acknowledgement does not count."""
    FENCED = "fenced"
    """The partition was given out anew, or the member is gone: nothing was changed."""
    GONE = "gone"
    """The message is done: there is no lease to extend."""


class Standing(Enum):
    """How it stands with a message that a member does not have."""

    WAITING = auto()  # no member has it
    LEASED = auto()  # another member has it
    SETTLED = auto()  # it is done


_REJECTED = {Standing.WAITING: Outcome.LATE, Standing.LEASED: Outcome.STALE, Standing.SETTLED: Outcome.DONE}
_EXTENDED = {Standing.WAITING: Outcome.STALE, Standing.LEASED: Outcome.STALE, Standing.SETTLED: Outcome.GONE}


def standing(source: GroupPartition | RetryQueue, offset: int) -> Standing:
    """How it stands with a message, or with its retry if it has one."""
    if any([offset in other.in_flight for other in source.subscriptions]):
        return Standing.LEASED
    if isinstance(source, RetryQueue):
        lane = source.lanes[0]
        is_there = offset not in source.out_sequences() and bool(lane.reader.load(lane.id, [offset]))
        return Standing.WAITING if is_there else Standing.SETTLED
    retries = source.group.retries
    retry = None if retries is None else retries.find(source.partition.lane, offset)
    if retries is not None and retry is not None:
        return standing(retries, retry)
    is_settled = offset in source.finished or offset in source.out_sequences()
    return Standing.SETTLED if is_settled else Standing.WAITING


class Settling:
    def __init__(self, session: ConsumingSession) -> None:
        self._session = session

    def settle(self, what: These | UpTo, how: Settlement, tx: Tx | None, transaction: Transaction | None) -> None:
        """Do with messages what is said. If some of ``These`` are unknown, all others are settled; of a range none."""
        part = cast(Subscription, what.part)
        consumer: LocalConsumer = part.consumer
        self._check(consumer, how, tx)
        if isinstance(consumer, MemberConsumer):
            if self._session.parts.get(part.number) is not part:
                consumer.whole.group.fenced += 1
                return
            found = self._of_member(consumer, what, how, transaction)
        elif isinstance(what, These):
            self._these(part, what.sequences, how, transaction)
            return
        else:
            found = self._range(consumer, what, how, transaction)
        for each, sequences in found:
            self._do(each, sequences, how, transaction)

    def _check(self, consumer: LocalConsumer, how: Settlement, tx: Tx | None) -> None:
        kind = how.kind
        if kind in REJECTIONS and consumer.not_rejectable:
            raise InvalidHeader(consumer.not_rejectable, header="id")
        if kind is Kind.POISON and tx is not None:
            raise InvalidArgument("POISON cannot be part of a transaction: send it outside of it", argument="type")
        if not isinstance(consumer, MemberConsumer):
            if kind is Kind.EXTEND:
                raise InvalidHeader("extend is for members of a group: a queue has no leases", header="extend")
        elif tx is not None and is_branch(tx) and kind in WAITS:
            text = "messages of a stream are not acknowledged in an XA transaction: use a local one, or none"
            raise InvalidArgument(text, argument="transaction_id")

    # Which messages.

    def _these(
        self, part: Subscription, sequences: list[int], how: Settlement, transaction: Transaction | None
    ) -> None:  # fmt: skip
        """Settle some of a part, also those that a rollback gave back; those that are unknown are an error then."""
        at_once = how.kind is Kind.ACCEPTED and transaction is None
        if at_once:
            missing = part.acknowledge(sequences)
        else:
            missing = [sequence for sequence in sequences if sequence not in part.in_flight]
        came_back = [sequence for sequence in missing if self._session.rolled_back.covered(part, sequence)]
        unknown = [sequence for sequence in missing if sequence not in came_back]
        if not at_once and (known := [sequence for sequence in sequences if sequence not in unknown]):
            self._do(part, known, how, transaction)
        elif at_once and came_back:
            self._session.rolled_back.settle(part, came_back)
        if unknown and how.kind is not Kind.UNWRITABLE:
            raise _unknown(part, unknown[0])

    def _range(
        self, consumer: LocalConsumer, what: UpTo, how: Settlement, transaction: Transaction | None
    ) -> Found:  # fmt: skip
        part, first, last = cast(Subscription, what.part), what.first, what.last
        if last not in part.in_flight:
            return self._came_back(part, what, how, transaction)
        if how.kind is Kind.DELIVERED and first is None and what.expected == 1:
            self._note_had(consumer, part, last)
            return [(part, [last])]
        if consumer.whole is not None:
            return self._range_of_parts(consumer, what)
        had = consumer.had_before
        if first is not None and first not in part.in_flight and first not in had:
            if how.kind is not Kind.DELIVERED:
                raise _unknown(part, first)
            first = None
        run = part.up_to(last) if first is None else run_of(part.in_flight, had, first, last, 0)
        if not run:
            raise InvalidArgument(f"message {first} was dispatched after message {last}", argument="first")
        if how.kind is Kind.ACCEPTED and transaction is None and first is not None and first not in had:
            _check_count(run, what.expected)
        return [(part, run)]

    def _came_back(
        self, part: Subscription, what: UpTo, how: Settlement, transaction: Transaction | None
    ) -> Found:  # fmt: skip
        """An acknowledgement of a range that ends with what a rollback gave back."""
        late = self._session.rolled_back.covered(part, what.last)
        if not late or what.first is not None:
            raise _unknown(part, what.last)
        if transaction is not None and how.kind in WAITS:
            return [(part, late)]
        if how.kind is Kind.ACCEPTED:
            self._session.rolled_back.settle(part, late)
        return []

    def _range_of_parts(self, consumer: LocalConsumer, what: UpTo) -> Found:
        assert consumer.whole is not None
        last = (cast(Subscription, what.part), what.last)
        of = what.first_part or (what.part if isinstance(consumer, MemberConsumer) else None)
        first = None if what.first is None or of is None else (cast(Subscription, of), what.first)
        if what.expected == 1:
            return [(last[0], [last[1]])]
        run = run_of(consumer.whole.given_out, consumer.had_before, first, last, what.expected)
        if not run:
            raise InvalidArgument(f"message {what.first} was dispatched after the last one", argument="first")
        return _by_part(run)

    def _note_had(self, consumer: LocalConsumer, part: Subscription, sequence: int) -> None:
        had, given = consumer.had_before, part.in_flight if consumer.whole is None else consumer.whole.given_out
        if len(had) > len(given):
            consumer.had_before = had = {key: None for key in had if key in given}
        had[sequence if consumer.whole is None else (part, sequence)] = None

    def _of_member(
        self, consumer: MemberConsumer, what: These | UpTo, how: Settlement, transaction: Transaction | None
    ) -> Found:  # fmt: skip
        """What of some messages of a member it has. An acknowledgement of another one is late, and may count."""
        part = cast(MemberSubscription, what.part)
        sequences = what.sequences if isinstance(what, These) else [what.last]
        here = [sequence for sequence in sequences if sequence in part.in_flight]
        if len(here) < len(sequences) and how.kind is Kind.ACCEPTED and transaction is None:
            for sequence in sequences:
                if sequence not in part.in_flight:
                    consumer.whole.group.acknowledged_late(part, sequence)
        if not here:
            return []
        if isinstance(what, These):
            return [(part, here)]
        if how.kind is Kind.DELIVERED and what.first is None and what.expected == 1:
            self._note_had(consumer, part, what.last)
        if what.expected == 1 or (what.first is None and what.expected == 0):
            found = self._range_of_parts(consumer, what)
            return found
        return [
            (each, free)
            for each, covered in self._range_of_parts(consumer, what)
            if (free := [s for s in covered if not cast(MemberSubscription, each).is_in_transaction(s)])
        ]

    # By handles.

    def settle_handles(
        self, what: Handles, how: Settlement, tx: Tx | None, transaction: Transaction | None
    ) -> dict[Handle, Outcome]:  # fmt: skip
        """Do with messages of a member what is said; all is read before anything is done. What became of each."""
        consumer = cast(MemberConsumer, what.consumer)
        self._check(consumer, how, tx)
        group, children = consumer.whole.group, consumer.whole.children
        outcomes: dict[Handle, Outcome] = {}
        here: dict[MemberSubscription, list[int]] = {}
        missing: dict[Handle, MemberSubscription] = {}
        for first, last, partition, epoch in what.handles:
            part = children.get(partition)
            for offset in range(first, last + 1):
                handle = Handle(offset, offset, partition, epoch)
                if handle in outcomes:
                    continue
                if part is None or epoch < 0 or not part.is_meant(epoch, offset):
                    outcomes[handle] = Outcome.FENCED
                elif offset in part.in_flight:
                    outcomes[handle] = Outcome.DONE
                    here.setdefault(part, []).append(offset)
                else:
                    outcomes[handle] = Outcome.STALE  # it is looked at
                    missing[handle] = part
        ends = {handle: self._end_of(group, part, handle.first, how, transaction) for handle, part in missing.items()}
        group.fenced += list(outcomes.values()).count(Outcome.FENCED)
        for part, offsets in here.items():
            for each, covered in self._with_earlier(consumer, part, offsets):
                self._do(each, covered, how, transaction)
        for handle, end in ends.items():
            outcomes[handle] = end()
        return outcomes

    def _with_earlier(self, consumer: MemberConsumer, part: MemberSubscription, offsets: list[int]) -> Found:
        """Where acknowledgements are cumulative, each is about all that was given out before, too."""
        if part.ack is not AckMode.CLIENT:
            return [(part, offsets)]
        covered: dict[tuple[Subscription, int], None] = {}
        for offset in offsets:
            covered.update(dict.fromkeys(up_to(consumer.whole.given_out, (part, offset))))
        return _by_part(list(covered))

    def _end_of(
        self, group: Group, part: MemberSubscription, offset: int, how: Settlement,
        transaction: Transaction | None,
    ) -> Callable[[], Outcome]:  # fmt: skip
        """Look at a message that the member does not have; what it returns does what is to be done."""
        if transaction is not None and how.kind in WAITS:
            return lambda: Outcome.STALE
        if how.kind is Kind.ACCEPTED:
            otherwise = Outcome.DONE if standing(part.source, offset) is Standing.SETTLED else Outcome.STALE
            late = part.source.find_late(offset)
            return lambda: Outcome.LATE if group.finish_late(part, late) else otherwise
        known = _EXTENDED if how.kind is Kind.EXTEND else _REJECTED
        outcome = known[standing(part.source, offset)]
        return lambda: outcome

    # What is done with them.

    def _do(self, part: Subscription, sequences: list[int], how: Settlement, transaction: Transaction | None) -> None:
        kind = how.kind
        if transaction is not None and kind in WAITS:
            if kind in (Kind.REJECTED, Kind.DEAD):
                transaction.reject(part, sequences)
            else:
                transaction.acknowledge(part, sequences)
        elif kind is Kind.DELIVERED:
            self._delivered(part, sequences)
        elif kind is Kind.EXTEND:
            held = [part.in_flight[sequence] for sequence in sequences if sequence in part.in_flight]
            member = cast(MemberSubscription, part).member
            member.extend(cast(MemberSubscription, part), held, (how.delay_ms or 0) / 1000)
        elif kind is Kind.UNWRITABLE and is_dead_letter_queue(part.destination, part.source.policy):
            self._pass_over(part, sequences, how.cause)
        elif kind is not Kind.REDELIVERED:
            self._take(part, sequences, how)

    def _take(self, part: Subscription, sequences: list[int], how: Settlement) -> None:
        source, messages, kind = part.source, part.take(sequences), how.kind
        cause = how.cause or ("the client could not process it" if kind is Kind.POISON else REJECTED_CAUSE)
        if kind in (Kind.ACCEPTED, Kind.UNMATCHED):
            source.acknowledge(messages)
            if kind is Kind.UNMATCHED:
                source.dequeued -= len(messages)
        elif kind is Kind.RELEASED:
            source.give_back(messages)
        elif kind is Kind.EXPIRED:
            source.dead_letter(messages, "expired", "expired before the consumer could process it")
        elif kind is Kind.REJECTED or (kind is Kind.POISON and _stays(part)):
            source.redeliver(messages, len(messages), cause, at_once=False, delay_ms=how.delay_ms)
        else:
            is_duplicate = kind is Kind.POISON and cause.startswith(DUPLICATE)
            source.dead_letter(messages, "duplicate" if is_duplicate else "failed", cause)

    def _delivered(self, part: Subscription, sequences: list[int]) -> None:
        """The application has messages, and will say more of them: they take no credit now."""
        if isinstance(part, MemberSubscription):
            part.note_delivered(sequences)
        elif part.source.policy.use_prefetch_extension:
            part.extend([sequence for sequence in sequences if sequence in part.in_flight])

    def _pass_over(self, part: Subscription, sequences: list[int], cause: str) -> None:
        """The client passes dead letters that it cannot be given: in flight without credit, they come back later."""
        for sequence in sequences:
            if sequence in part.in_flight:
                part.extend([sequence])
                destination = str(part.destination)
                text = f"{part.id} passes a message of {destination}: {cause}"
                event("message.passed", text, destination=destination, consumer=part.id, sequence=sequence)


def _stays(part: Subscription) -> bool:
    """Whether a message that its client gives up comes again: a member's does so by its retry ladder."""
    return isinstance(part, MemberSubscription) or is_dead_letter_queue(part.destination, part.source.policy)


def _unknown(part: Subscription, sequence: int) -> UnknownMessage:
    return UnknownMessage(f"message {sequence} is not in flight on {part.id!r}", sequence=sequence)


def _check_count(run: list[int], expected: int) -> None:
    if expected and expected != len(run):
        text = f"{run[0]} to {run[-1]} are {len(run)} messages, and the client sent {expected}"
        raise InvalidArgument(text, argument="count", found=len(run))


def _by_part(run: Sequence[tuple[Subscription, int]]) -> Found:
    found: dict[Subscription, list[int]] = {}
    for part, sequence in run:
        found.setdefault(part, []).append(sequence)
    return list(found.items())
