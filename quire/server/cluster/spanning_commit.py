"""The commit of a transaction with parts at several shards, as the entry of its client sees to it.

All parts but one are prepared first. The commit of the last one, the coordinator's, is the decision; it is stored in
one commit with the mark that says so. From then on the coordinator has the others commit, whatever becomes of the
entry. If anything fails before, the client's connection ends, and with it all that is not prepared; what is prepared
asks the coordinator, and is rolled back.

The input of the client waits meanwhile: so what it sends later does not overtake what the transaction sends.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from quire.broker.transactions.decisions import SpanningId

P = TypeVar("P")


class Seat(NamedTuple):
    """Where a part of a transaction is: the shard, and the epoch of its owner."""

    shard: int
    epoch: int


class SpanningCommit(Generic[P]):
    """One commit.

    Args:
        coordinator: the part that decides.
        others: the parts that are prepared.
        seat: says where a part is now; asked after it has answered. May raise ``ShardMoved``.
        ask: has parts make a step each, given as text, and makes a call when all have done so. False if one of them has
            to wait first: then nothing was done, and the client's input goes on later. It may raise ``QuireError``.
        resume: has the client's input go on.
    """

    def __init__(
        self, coordinator: P, others: list[P], seat: Callable[[P], Seat],
        ask: Callable[[Mapping[P, str], Callable[[], None]], bool], resume: Callable[[], None],
    ) -> None:  # fmt: skip
        self._coordinator = coordinator
        self._others = others
        self._seat = seat
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
        """All parts that were asked have made their step."""
        self._steps.pop()
        self._is_asking = False
        if not self._is_here:
            self._resume()

    def _enlist(self) -> Mapping[P, str]:
        return {self._coordinator: f"enlist {self._token.hex()}"}

    def _prepare(self) -> Mapping[P, str]:
        self._id = SpanningId(*self._seat(self._coordinator), self._token)
        return {part: f"prepare {self._id.branch(number)}" for number, part in enumerate(self._others)}

    def _decide(self) -> Mapping[P, str]:
        seats = [self._seat(part) for part in self._others]
        return {self._coordinator: " ".join([f"decide {self._id}", *[f"{s.shard}.{s.epoch}" for s in seats]])}
