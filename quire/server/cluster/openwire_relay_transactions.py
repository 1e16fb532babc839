"""The transactions of one OpenWire client in a cluster: each begins at a shard with the first work for it.

A local transaction has work for one shard. A branch of an XA transaction may have work for several: it is prepared and
ends at all of them.
"""

from collections.abc import Callable
from functools import partial

from quire.broker.transactions.transaction_services import check_room
from quire.broker.transactions.xid import Xid
from quire.errors import QuireError, TransactionRolledBack, TransactionSpansShards, UnknownTransaction, UnknownXid
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
from quire.server.openwire.openwire_transactions import PREPARED, READ_ONLY

_COMMITS = (TransactionType.COMMIT_ONE_PHASE, TransactionType.COMMIT_TWO_PHASE)
_OF_LOCAL = (TransactionType.COMMIT_ONE_PHASE, TransactionType.ROLLBACK, TransactionType.END)
_OUTCOMES = (*_COMMITS, TransactionType.ROLLBACK, TransactionType.FORGET)


MOST_KNOWN = 1000
"""Of how many transactions of a client it is known which shards they have work for."""


class _Open:
    """A transaction that is open, or a branch whose outcome is not known.

    Attributes:
        is_active: whether work may come for it.
        parts: the shards that it has work for.
        failure: the first error of what was sent or acknowledged in it.
        settled: the messages of consumers of several shards that were acknowledged in it.
    """

    __slots__ = ("failure", "is_active", "parts", "settled")

    def __init__(self) -> None:
        self.parts: dict[Part, None] = {}
        self.failure: QuireError | None = None
        self.is_active = True
        self.settled: list[tuple[SpreadConsumer, list[int]]] = []


class OpenWireRelayTransactions:
    """Transactions, by id."""

    def __init__(self, parts: OpenWireRelayParts) -> None:
        self._parts = parts
        self._open: dict[TransactionId, _Open] = {}

    # Work in them.

    def work(self, id: TransactionId | None, part: Part) -> None:
        """Something is about to be done in a transaction at a shard; of one that was not begun the shard says so.

        Raises:
            TransactionSpansShards: it is a local one that has work for another shard.
        """
        known = self._open.get(id) if id is not None else None
        if known is None or part in known.parts:
            return
        if known.parts and not isinstance(id, XATransactionId):
            text = f"the transaction {id} is about destinations of several shards of the cluster"
            raise TransactionSpansShards(text, transaction=str(id)[:60])
        known.parts[part] = None
        part.tell(TransactionInfo(transaction_id=id, type=int(TransactionType.BEGIN)))

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
                Xid(id.format_id, id.global_transaction_id, id.branch_qualifier)  # an invalid one is refused at once
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

    # Branches of XA transactions.

    def _xa_step(self, info: TransactionInfo, id: TransactionId) -> bool | None:
        known = self._open.get(id)
        if known is None or not known.parts:
            return self._unknown_step(info, id, known)
        if known.failure is not None and info.type in (*_COMMITS, TransactionType.PREPARE):
            self._roll_back(id, known)
            raise _failed(id, known.failure)
        if len(known.parts) > 1 and info.type == TransactionType.COMMIT_ONE_PHASE:
            self._roll_back(id, known)
            text = f"the transaction {id} has work for several shards: it was rolled back; prepare it first"
            raise TransactionSpansShards(text, transaction=str(id)[:60])
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
            known.parts = dict.fromkeys(prepared)
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
