"""The transactions of one OpenWire client in a cluster: each begins at a shard with the first work for it.

A transaction may have work for several shards. A branch of an XA transaction is prepared and ends at all of them; a
commit in one phase, of a branch or of a local transaction, is a ``SpanningCommit``.
"""

from collections.abc import Callable, Mapping
from functools import partial

from quire.broker.transactions.transaction import check_room
from quire.errors import ProtocolViolation, QuireError, TransactionRolledBack, UnknownTransaction, UnknownXid
from quire.protocols.openwire.commands import (
    DataArrayResponse,
    ExceptionResponse,
    IntegerResponse,
    Response,
    TransactionInfo,
    TransactionType,
)
from quire.protocols.openwire.structures import LocalTransactionId, TransactionId, XATransactionId
from quire.server.cluster.openwire_relay_consumer import SpreadConsumer
from quire.server.cluster.openwire_relay_part import Part
from quire.server.cluster.openwire_relay_parts import (
    Answers,
    OpenWireRelayParts,
    code_of,
    first_error,
    success_anywhere,
)
from quire.server.cluster.openwire_step_session import STEP, step_command
from quire.server.cluster.spanning_commit import SpanningCommit
from quire.server.openwire.openwire_transactions import PREPARED, READ_ONLY, xid_of

_COMMITS = (TransactionType.COMMIT_ONE_PHASE, TransactionType.COMMIT_TWO_PHASE)
_OF_LOCAL = (TransactionType.COMMIT_ONE_PHASE, TransactionType.ROLLBACK, TransactionType.END)
_OUTCOMES = (*_COMMITS, TransactionType.ROLLBACK, TransactionType.FORGET)


MOST_KNOWN = 1000
"""Of how many transactions of a client it is known which shards they have work for."""


class _Open:
    """A transaction that is open, or a branch whose outcome is not known.

    Attributes:
        is_active: whether work may come for it.
        parts: the shards that it has work for; whether it acknowledges there.
        ending: its commit, if it has several parts and is under way.
        failure: the first error of what was sent or acknowledged in it.
        settled: the messages of consumers of several shards that were acknowledged in it.
    """

    __slots__ = ("ending", "failure", "is_active", "parts", "settled")

    def __init__(self) -> None:
        self.parts: dict[Part, bool] = {}
        self.ending: SpanningCommit[Part] | None = None
        self.failure: QuireError | None = None
        self.is_active = True
        self.settled: list[tuple[SpreadConsumer, list[int]]] = []


class OpenWireRelayTransactions:
    """Transactions, by id."""

    def __init__(self, parts: OpenWireRelayParts) -> None:
        self._parts = parts
        self._open: dict[TransactionId, _Open] = {}

    # Work in them.

    def work(self, id: TransactionId | None, part: Part, *, acknowledges: bool = False) -> None:
        """Something is about to be done in a transaction at a shard; of one that was not begun the shard says so."""
        known = self._open.get(id) if id is not None else None
        if known is None:
            return
        if part not in known.parts:
            known.parts[part] = False
            part.tell(TransactionInfo(transaction_id=id, type=int(TransactionType.BEGIN)))
        if acknowledges:
            known.parts[part] = True

    def settled(self, id: TransactionId | None, consumer: SpreadConsumer, numbers: list[int]) -> None:
        """Messages of a consumer of several shards were acknowledged in a transaction."""
        if id is not None and (known := self._open.get(id)) is not None:
            known.settled.append((consumer, numbers))

    def failed(self, id: TransactionId, error: QuireError) -> None:
        """Something in a transaction failed whose client does not wait for it: its commit is to fail."""
        if (known := self._open.get(id)) is not None:
            known.failure = known.failure or error

    # Their steps.

    def step(self, info: TransactionInfo) -> bool | None:
        """A step of a transaction; None if it is for this process alone, False if it has to wait."""
        if info.type == TransactionType.RECOVER:
            return self._parts.ask(dict.fromkeys(self._parts.every(), info), lambda a: self._recovered(info, a))
        if info.type == STEP:
            raise ProtocolViolation(f"{STEP} is no step of a transaction: 0 to 7", command="TransactionInfo")
        if info.transaction_id is None or info.type not in list(TransactionType):
            return None
        if info.type == TransactionType.BEGIN:
            return self._begin(info, info.transaction_id)
        if isinstance(info.transaction_id, LocalTransactionId):
            return self._local_step(info, info.transaction_id)
        return self._xa_step(info, info.transaction_id)

    def _begin(self, info: TransactionInfo, id: TransactionId) -> bool:
        known = self._open.get(id)
        if known is None:  # else a failover client, and one that goes on with a branch, repeat it
            if isinstance(id, XATransactionId):
                xid_of(id)  # an invalid one is refused at once
            check_room(sum([each.is_active for each in self._open.values()]))
            self._make_room()
            self._open[id] = _Open()
        elif isinstance(id, XATransactionId):
            known.is_active = True
            for part in known.parts:
                part.tell(TransactionInfo(transaction_id=id, type=int(TransactionType.BEGIN)))
        return self._done(info)

    def _make_room(self) -> None:
        """Forget the oldest branch that was ended or prepared, if there are many: all shards are asked for it then."""
        if len(self._open) >= MOST_KNOWN:
            oldest = next((id for id, known in self._open.items() if not known.is_active), None)
            if oldest is not None:
                del self._open[oldest]

    def _done(self, info: TransactionInfo) -> bool:
        self._parts.answer(info, Response())
        return True

    def _local_step(self, info: TransactionInfo, id: LocalTransactionId) -> bool | None:
        known = self._open.get(id)
        if known is None:
            return None
        if info.type not in _OF_LOCAL:
            text = f"{id} is a local transaction: it has no {TransactionType(info.type).name}"
            raise UnknownTransaction(text, transaction=str(id)[:60])
        if info.type == TransactionType.COMMIT_ONE_PHASE and known.failure is not None:
            self._roll_back(id, known)
            raise _failed(id, known.failure)
        if info.type == TransactionType.COMMIT_ONE_PHASE and len(known.parts) > 1:
            return self._commit(info, id, known)
        if known.parts:
            taken = self._tell(list(known.parts), info, lambda answers: self._parts.answer(info, first_error(answers)))
        else:
            taken = self._done(info)
        if taken and info.type in _OUTCOMES:
            self._end(id, known, info)
        return taken

    def _tell(self, parts: list[Part], info: TransactionInfo, then: Callable[[Answers], None]) -> bool:
        """Have shards make a step; False if this one has to wait first."""
        if parts == [self._parts.own]:
            return self._parts.own.tell(info)
        return self._parts.ask(dict.fromkeys(parts, info), then)

    def _end(self, id: TransactionId, known: _Open, info: TransactionInfo) -> None:
        """The outcome of a transaction was passed on."""
        self._open.pop(id, None)
        self._settle(known, is_committed=info.type in _COMMITS)

    def _roll_back(self, id: TransactionId, known: _Open) -> None:
        """Something in a transaction has failed: undo the rest."""
        self._open.pop(id, None)
        self._settle(known, is_committed=False)
        for part in known.parts:
            part.tell(TransactionInfo(transaction_id=id, type=int(TransactionType.ROLLBACK)))

    def _settle(self, known: _Open, *, is_committed: bool) -> None:
        for consumer, numbers in known.settled:
            consumer.transaction_ended(numbers, is_committed=is_committed)
        known.settled.clear()

    # Commits of several parts.

    def _commit(self, info: TransactionInfo, id: TransactionId, known: _Open) -> bool:
        """A commit, which may be under way; whether it is done. The coordinator is the first part that acknowledges."""
        if known.ending is None:
            acknowledging = [part for part, acknowledges in known.parts.items() if acknowledges]
            coordinator = next(iter([*acknowledging, *[part for part in known.parts if part is self._parts.own]]), None)
            coordinator = coordinator or next(iter(known.parts))
            others = [part for part in known.parts if part is not coordinator]
            ask = partial(self._ask, info, id)
            known.ending = SpanningCommit(coordinator, others, self._parts.seat, ask, self._parts.go_on)
        if not known.ending.go_on():
            return False
        self._end(id, known, info)
        return self._done(info)

    def _ask(
        self, info: TransactionInfo, id: TransactionId, steps: Mapping[Part, str], then: Callable[[], None]
    ) -> bool:
        """Have parts make their steps. If one cannot, the client's connection ends, and the transaction with it."""

        def answered(answers: Answers) -> None:
            error = first_error(answers)
            if isinstance(error, ExceptionResponse):
                self._parts.fail(info, error)
            else:
                then()

        return self._parts.ask({part: step_command(id, step) for part, step in steps.items()}, answered)

    # Branches of XA transactions.

    def _xa_step(self, info: TransactionInfo, id: TransactionId) -> bool | None:
        known = self._open.get(id)
        if known is None or not known.parts:
            return self._unknown_step(info, id, known)
        if known.failure is not None and info.type in (*_COMMITS, TransactionType.PREPARE):
            self._roll_back(id, known)
            raise _failed(id, known.failure)
        if len(known.parts) > 1 and info.type == TransactionType.COMMIT_ONE_PHASE:
            return self._commit(info, id, known)
        taken = self._tell(list(known.parts), info, partial(self._stepped, info, id))
        if taken:
            known.is_active = False
            if info.type in _OUTCOMES:
                self._end(id, known, info)
        return taken

    def _unknown_step(self, info: TransactionInfo, id: TransactionId, known: _Open | None) -> bool:
        """A step of a branch with no work of this connection: a transaction manager may use any other one for it."""
        if known is not None and info.type == TransactionType.END:
            known.is_active = False
            return self._done(info)
        then = partial(self._stepped, info, id, nothing_done=known is not None)
        taken = self._parts.ask(dict.fromkeys(self._parts.every(), info), then)
        if taken:
            self._open.pop(id, None)
        return taken

    def _stepped(
        self, info: TransactionInfo, id: TransactionId, answers: Answers, *, nothing_done: bool = False
    ) -> None:
        """All shards have answered to a step; if they know nothing of a branch that had no work, that is well."""
        answer = success_anywhere(answers, UnknownXid.code)
        if nothing_done and isinstance(answer, ExceptionResponse) and code_of(answer) == UnknownXid.code:
            answer = IntegerResponse(result=READ_ONLY) if info.type == TransactionType.PREPARE else Response()
        elif info.type == TransactionType.PREPARE:
            answer = self._prepared(id, answers, answer)
        self._parts.answer(info, answer)

    def _prepared(self, id: TransactionId, answers: Answers, answer: Response) -> Response:
        """What shards have answered to a prepare: if one cannot do its part, none does."""
        prepared = [part for part, a in answers.items() if isinstance(a, IntegerResponse) and a.result == PREPARED]
        known = self._open.get(id)
        if isinstance(answer, ExceptionResponse) or not prepared:
            self._open.pop(id, None)
        if isinstance(answer, ExceptionResponse):
            for part in prepared:
                part.tell(TransactionInfo(transaction_id=id, type=int(TransactionType.ROLLBACK)))
            return answer
        if known is not None and prepared:
            known.parts = dict.fromkeys(prepared, False)
        return IntegerResponse(result=PREPARED if prepared else READ_ONLY)

    def _recovered(self, info: TransactionInfo, answers: Answers) -> None:
        """All shards have said which branches they have prepared."""
        error = first_error(answers)
        if isinstance(error, ExceptionResponse):
            self._parts.answer(info, error)
            return
        found = [id for a in answers.values() if isinstance(a, DataArrayResponse) for id in a.data or ()]
        self._parts.answer(info, DataArrayResponse(data=list(dict.fromkeys(found))))


def _failed(id: object, failure: QuireError) -> TransactionRolledBack:
    text = f"the transaction {id} was rolled back, because something in it failed: {failure}"
    return TransactionRolledBack(text, transaction=str(id)[:60], cause=failure.code)
