"""The transactions of one client of a cluster: each has a part at every shard that it has work for.

A part begins with the first work for it. With one part, its steps are passed on. A branch of an XA transaction is
prepared, and ends, at all of its shards; of a branch that this session does not know every shard is asked, since a
transaction manager may use any connection for its outcome.

The commit of several parts is a ``SpanningCommit``. All parts but one are prepared first. The commit of the last one,
the coordinator's, is the decision; it is stored in one commit with the mark that says so. From then on the coordinator
has the others commit, whatever becomes of the entry. If anything fails before, the client's connection ends, and with
it all that is not prepared; what is prepared asks the coordinator, and is rolled back. The input of the client waits
meanwhile: so what it sends later does not overtake what the transaction sends.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from quire.broker.transactions.decisions import Participant, SpanningId
from quire.broker.transactions.transaction import check_room
from quire.errors import QuireError, UnknownTransaction, UnknownXid
from quire.sessions.base import PREPARED, READ_ONLY, Session, Step, Token, Tx
from quire.sessions.transactions import is_branch, rolled_back, shown, unknown, xid_of

P = TypeVar("P")


class SpanningCommit(Generic[P]):
    """One commit.

    Args:
        place: says where a part is now; asked after it has answered. May raise ``ShardMoved``.
        ask: has parts make a step each, given as text, and makes a call when all have done so. False if one of them has
            to wait first: then nothing was done, and the client's input goes on later. It may raise ``QuireError``.
        resume: has the client's input go on.
    """

    def __init__(
        self, coordinator: P, others: list[P], place: Callable[[P], Participant],
        ask: Callable[[Mapping[P, str], Callable[[], None]], bool], resume: Callable[[], None],
    ) -> None:  # fmt: skip
        self._coordinator = coordinator
        self._others = others
        self._place = place
        self._ask = ask
        self._resume = resume
        self._token = secrets.token_bytes(16)
        self._id = SpanningId(0, 0, self._token)
        self._steps = [self._decide, self._prepare, self._enlist]  # those that are not done, the next one last
        self._is_asking = self._is_here = False

    def go_on(self) -> bool:
        """Do what can be done now; whether it is all done: every part is committed."""
        while self._steps and not self._is_asking:
            self._is_asking = self._is_here = True
            taken = self._ask(self._steps[-1](), self._answered)
            self._is_here = False
            if not taken:
                self._is_asking = False
                break
        return not self._steps

    def _answered(self) -> None:
        self._steps.pop()
        self._is_asking = False
        if not self._is_here:
            self._resume()

    def _enlist(self) -> Mapping[P, str]:
        return {self._coordinator: f"enlist {self._token.hex()}"}

    def _prepare(self) -> Mapping[P, str]:
        place = self._place(self._coordinator)
        self._id = SpanningId(place.shard, place.epoch, self._token)
        return {part: f"prepare {self._id.branch(number)}" for number, part in enumerate(self._others)}

    def _decide(self) -> Mapping[P, str]:
        places = [self._place(part) for part in self._others]
        return {
            self._coordinator: " ".join([f"decide {self._id}", *[f"{place.shard}.{place.epoch}" for place in places]])
        }


MOST_KNOWN = 1000
"""Of how many transactions of a client it is known which shards they have work for."""

_COMMITS = (Step.COMMIT, Step.COMMIT_PREPARED)
_OUTCOMES = (*_COMMITS, Step.ROLLBACK, Step.ROLLBACK_KEEP, Step.FORGET)
_OF_LOCAL = (Step.COMMIT, Step.ROLLBACK, Step.ROLLBACK_KEEP, Step.END)

Answers = Mapping[int, Any]
"""What shards have answered: results, or errors."""


class Shards(Protocol):
    """The client's session, as its transactions see it."""

    own: int

    def at(self, shard: int) -> Session: ...

    def every(self) -> Iterable[int]: ...

    def ask(
        self, shards: Iterable[int], verb: Callable[[int, Session, Token], bool], then: Callable[[Answers], None]
    ) -> bool:  # fmt: skip
        ...

    def step(self, shard: int, tx: Tx, text: str, token: Token) -> bool: ...

    def place(self, shard: int) -> Participant: ...

    def confirm_here(self, token: Token) -> None: ...

    def answer(self, token: Token, answer: Any) -> None: ...

    def break_off(self, token: Token, error: QuireError) -> None: ...

    def go_on(self) -> None: ...

    def transaction_ended(self, tx: Tx, step: Step) -> None: ...


class _Open:
    """A transaction that is open, or a branch whose outcome is not known: of its parts, whether they acknowledge."""

    __slots__ = ("ending", "failure", "is_active", "parts")

    def __init__(self) -> None:
        self.parts: dict[int, bool] = {}
        self.ending: SpanningCommit[int] | None = None
        self.failure: QuireError | None = None
        self.is_active = True


class ClusterTransactions:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._open: dict[Tx, _Open] = {}

    # Work in them.

    def work(self, tx: Tx, shard: int, *, acknowledges: bool = False) -> None:
        """Something is about to be done in a transaction at a shard; of an unknown branch the shard says so."""
        known = self._open.get(tx)
        if known is None:
            if not is_branch(tx):
                raise unknown(tx)
            return
        if shard not in known.parts:
            self._shards.at(shard).begin(tx)
            known.parts[shard] = False
        if acknowledges:
            known.parts[shard] = True

    def spoil(self, tx: Tx, error: QuireError) -> None:
        """Something in a transaction failed before it came to a shard: its commit is to fail."""
        if (known := self._open.get(tx)) is not None and known.is_active:
            known.failure = known.failure or error

    # Their steps.

    def begin(self, tx: Tx, token: Token) -> None:
        """Begin a transaction; of a known one nothing changes, and a known branch goes on."""
        known = self._open.get(tx)
        if known is None:
            if is_branch(tx):
                xid_of(tx)  # an invalid one is refused at once
            check_room(sum([each.is_active and is_branch(name) == is_branch(tx) for name, each in self._open.items()]))
            self._make_room()
            self._open[tx] = _Open()
        elif is_branch(tx):
            known.is_active = True
            for shard in known.parts:
                self._shards.at(shard).begin(tx)
        self._shards.confirm_here(token)

    def _make_room(self) -> None:
        """Forget the oldest branch that was ended or prepared, if there are many: all shards are asked for it then."""
        if len(self._open) >= MOST_KNOWN:
            oldest = next((tx for tx, known in self._open.items() if not known.is_active), None)
            if oldest is not None:
                del self._open[oldest]

    def end(self, tx: Tx, step: Step, token: Token) -> bool:
        return self._branch_step(tx, step, token) if is_branch(tx) else self._local_step(tx, step, token)

    def _local_step(self, tx: Tx, step: Step, token: Token) -> bool:
        known = self._open.get(tx)
        if known is None:
            raise unknown(tx)
        if step not in _OF_LOCAL:
            text = f"{shown(tx)} is a local transaction: it has no {step.name}"
            raise UnknownTransaction(text, transaction=shown(tx))
        if step is Step.COMMIT and known.failure is not None:
            self._roll_back(tx, known)
            raise rolled_back(tx, known.failure)
        if step is Step.COMMIT and len(known.parts) > 1:
            return self._commit(tx, known, token)
        if step is Step.END or not known.parts:
            self._shards.confirm_here(token)
        elif not self._pass_on(tx, known, step, token):
            return False
        if step in _OUTCOMES:
            self._forget(tx, step)
        return True

    def _pass_on(self, tx: Tx, known: _Open, step: Step, token: Token) -> bool:
        if len(known.parts) == 1:
            (shard,) = known.parts
            try:
                return self._shards.at(shard).end(tx, step, token)
            except QuireError:
                if step in _OUTCOMES:
                    self._forget(tx, step)
                raise
        return self._ask(known.parts, tx, step, lambda answers: self._shards.answer(token, first_error(answers)))

    def _ask(self, shards: Iterable[int], tx: Tx, step: Step, then: Callable[[Answers], None]) -> bool:
        return self._shards.ask(shards, lambda _, session, token: session.end(tx, step, token), then)

    def _forget(self, tx: Tx, step: Step) -> None:
        self._open.pop(tx, None)
        self._shards.transaction_ended(tx, step)

    def _roll_back(self, tx: Tx, known: _Open) -> None:
        self._forget(tx, Step.ROLLBACK_KEEP)
        for shard in known.parts:
            self._shards.at(shard).end(tx, Step.ROLLBACK_KEEP)

    # Commits of several parts.

    def _commit(self, tx: Tx, known: _Open, token: Token) -> bool:
        """A commit, which may be under way; whether it is done. The coordinator is the first part that acknowledges.

        What that acknowledges need not be hidden, and shown again if another part fails; and the progress of a
        consumer group cannot be prepared.
        """
        if known.ending is None:
            coordinator = next((shard for shard, acknowledges in known.parts.items() if acknowledges), None)
            if coordinator is None:
                coordinator = self._shards.own if self._shards.own in known.parts else next(iter(known.parts))
            others = [shard for shard in known.parts if shard != coordinator]
            ask = partial(self._ask_steps, tx, token)
            known.ending = SpanningCommit(coordinator, others, self._shards.place, ask, self._shards.go_on)
        if not known.ending.go_on():
            return False
        self._forget(tx, Step.COMMIT)
        self._shards.confirm_here(token)
        return True

    def _ask_steps(self, tx: Tx, token: Token, steps: Mapping[int, str], then: Callable[[], None]) -> bool:
        """Have parts make their steps. If one cannot, the session ends, and all with it that is not prepared."""

        def answered(answers: Answers) -> None:
            error = first_error(answers)
            if error is None:
                then()
            else:
                self._shards.break_off(token, error)

        return self._shards.ask(
            steps, lambda shard, _, asked: self._shards.step(shard, tx, steps[shard], asked), answered
        )

    # Branches of XA transactions.

    def _branch_step(self, tx: Tx, step: Step, token: Token) -> bool:
        known = self._open.get(tx)
        if known is None or not known.parts:
            return self._unknown_step(tx, step, token, known)
        if known.failure is not None and step in (*_COMMITS, Step.PREPARE):
            self._roll_back(tx, known)
            raise rolled_back(tx, known.failure)
        if len(known.parts) > 1 and step is Step.COMMIT:
            return self._commit(tx, known, token)
        if not self._ask(list(known.parts), tx, step, partial(self._stepped, tx, step, token)):
            return False
        known.is_active = False
        if step in _OUTCOMES:
            self._forget(tx, step)
        return True

    def _unknown_step(self, tx: Tx, step: Step, token: Token, known: _Open | None) -> bool:
        """A step of a branch with no work of this session."""
        if known is not None and step is Step.END:
            known.is_active = False
            self._shards.confirm_here(token)
            return True
        then = partial(self._stepped, tx, step, token, nothing_done=known is not None)
        if not self._ask(self._shards.every(), tx, step, then):
            return False
        self._open.pop(tx, None)
        return True

    def _stepped(self, tx: Tx, step: Step, token: Token, answers: Answers, *, nothing_done: bool = False) -> None:
        """All shards have answered; if they know nothing of a branch that had no work, that is well."""
        error = error_unless(answers, UnknownXid.code)
        if nothing_done and error is not None and error.code == UnknownXid.code:
            self._shards.answer(token, READ_ONLY if step is Step.PREPARE else None)
        elif step is Step.PREPARE:
            self._shards.answer(token, self._prepared(tx, answers, error))
        else:
            self._shards.answer(token, error)

    def _prepared(self, tx: Tx, answers: Answers, error: QuireError | None) -> Any:
        """What answers a prepare: if one shard cannot do its part, none does."""
        prepared = [shard for shard, answer in answers.items() if answer == PREPARED and answer is not None]
        known = self._open.get(tx)
        if error is not None or not prepared:
            self._open.pop(tx, None)
        if error is not None:
            for shard in prepared:
                self._shards.at(shard).end(tx, Step.ROLLBACK_KEEP)
            return error
        if known is not None and prepared:
            known.parts = dict.fromkeys(prepared, False)
        return PREPARED if prepared else READ_ONLY


def first_error(answers: Answers) -> QuireError | None:
    return next((answer for answer in answers.values() if isinstance(answer, QuireError)), None)


def error_unless(answers: Answers, absent: str) -> QuireError | None:
    """An error of those shards that know what was asked for: others answer with the code ``absent``."""
    errors = [answer for answer in answers.values() if isinstance(answer, QuireError)]
    others = [error for error in errors if error.code != absent]
    if others:
        return others[0]
    return errors[0] if len(errors) == len(answers) and errors else None
