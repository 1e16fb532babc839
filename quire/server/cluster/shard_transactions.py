"""The parts that one process has in transactions over several shards, and what shards tell each other of their outcome.

The entry of the client sees to the commit (``SpanningCommit``): it *enlists* the transaction at its coordinator, has
all others *prepare*, and then has the coordinator *decide*, which commits the coordinator's own part.

The coordinator tells each participant to commit, again and again until this has said that it is done. A participant
that has prepared a branch and hears nothing asks whether it may still be committed. So every branch ends, whichever
process was lost meanwhile. A process that was replaced may not know that: what it says of a branch counts only if it
was the owner of its shard when the branch was prepared, or later.

Lines: ``commit XID`` is answered with ``done XID EPOCH``; ``ask XID`` with ``gone XID EPOCH`` or not at all.
"""

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TypeVar

from quire.broker.broker import Broker
from quire.broker.transactions.decisions import Decision, Decisions, Participant, SpanningId, Xid
from quire.broker.transactions.transaction import Transaction
from quire.broker.transactions.xa import XaState
from quire.cluster.link import Opening, VirtualConnection
from quire.errors import LimitExceeded, ProtocolViolation, QuireError
from quire.logs import event
from quire.server.cluster.links import Links
from quire.sessions.session import LocalSession

LONGEST = 1000
"""The longest line, in bytes."""


class LineEnd:
    """One end of a virtual connection on which two processes of a cluster exchange lines of text."""

    connection: VirtualConnection

    def __init__(
        self, take: Callable[["LineEnd", list[str]], None], gone: Callable[["LineEnd"], None]
    ) -> None:  # fmt: skip
        self._take = take
        self._gone = gone
        self._rest = b""

    def say(self, *words: object) -> None:
        self.connection.write(" ".join([str(word) for word in words]).encode() + b"\n")

    def close(self) -> None:
        self.connection.close()

    # The virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        """Bytes have come; what is no line of this version ends the connection."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            for line in lines:
                self._take(self, line.decode("ascii", "replace").split())
            if len(self._rest) > LONGEST:
                raise ProtocolViolation("a line between processes of the cluster has no end", command="line")
        except QuireError as fault:
            self.connection.close(fault)
            self._gone(self)
        self.connection.taken(len(data))

    def room_again(self) -> None: ...

    def ended(self, error: QuireError | None) -> None:
        self._gone(self)


PROTOCOL = "outcomes"
"""What is spoken on these virtual connections."""

TICK = 1.0
"""How often outcomes that are missing are asked for, and told again, in seconds."""

MOST = 500
"""For how many branches at once."""

K = TypeVar("K")
V = TypeVar("V")


class Outcomes:
    def __init__(self, broker: Broker, links: Links, decisions: Decisions) -> None:
        self._broker = broker
        self._links = links
        self._map = links.cluster_map
        self._decisions = decisions
        self._asked: dict[int, LineEnd] = {}  # the connections to shards, by number
        self._asking: dict[LineEnd, None] = {}  # those of other processes
        self._opening = Opening(PROTOCOL, "", [], f"shard {links.cluster_map.own}", PROTOCOL)
        self._is_stopped = False
        self._complained: set[Xid] = set()
        self._answers: dict[str, Callable[[LineEnd, Xid], None]] = {"commit": self._commit, "ask": self._ask}
        decisions.stored = self._tell
        broker.core.scheduler.call_later(0, self._tick)

    def accept(self, connection: VirtualConnection) -> None:
        end = connection.end = LineEnd(self._answer, lambda end: self._asking.pop(end, None))
        end.connection = connection
        self._asking[end] = None

    def stop(self) -> None:
        self._is_stopped = True
        for end in [*self._asked.values(), *self._asking]:
            end.close()
        self._asked.clear()
        self._asking.clear()

    # What this process asks and tells.

    def _tick(self) -> None:
        if self._is_stopped:
            return
        self._broker.core.scheduler.call_later(TICK, self._tick)
        self._decisions.forget_closed()
        for id, decision in _next_of(self._decisions.open):
            if decision.is_stored:
                self._tell(id, decision)
        spanning = self._broker.xa.spanning
        self._complained &= spanning.keys()
        for xid, branch in _next_of(spanning):
            if branch.state in (XaState.PREPARED, XaState.DECIDED):
                id, _ = SpanningId.of(xid)
                self._say(id.shard, "ask", xid)

    def _tell(self, id: SpanningId, decision: Decision) -> None:
        for number in list(decision.open):
            self._say(decision.participants[number].shard, "commit", id.branch(number))

    def _say(self, shard: int, word: str, xid: Xid) -> None:
        end = self._asked.get(shard)
        if end is None:
            if self._is_stopped:
                return
            end = LineEnd(self._heard, partial(self._lost, shard))
            try:
                end.connection = self._links.open(shard, self._opening, end)
            except LimitExceeded:  # it is tried again
                return
            self._asked[shard] = end
        if not end.connection.is_full:
            end.say(word, xid)

    def _lost(self, shard: int, end: LineEnd) -> None:
        if self._asked.get(shard) is end:
            del self._asked[shard]

    def _heard(self, end: LineEnd, words: list[str]) -> None:
        word, xid, epoch = _read(words, 3)
        id, number = SpanningId.of(xid)
        if word == "done":
            self._decisions.done(id, number, epoch)
        elif word == "gone" and epoch >= id.epoch:
            self._settle_soon(xid, "rollback", lambda: None)

    # What other processes ask and tell.

    def _answer(self, end: LineEnd, words: list[str]) -> None:
        word, xid, _ = _read(words, 2)
        answer = self._answers.get(word)
        if answer is None:
            raise ProtocolViolation(f"{word[:20]!r} is nothing that shards ask", command=word[:20])
        answer(end, xid)

    def _commit(self, end: LineEnd, xid: Xid) -> None:
        self._settle_soon(xid, "commit", partial(self._settled, end, xid))

    def _settled(self, end: LineEnd, xid: Xid) -> None:
        """A commit has ended: if the branch is gone, that is durable."""
        if self._broker.xa.find(xid) is None:
            end.say("done", xid, self._map.epoch)

    def _ask(self, end: LineEnd, xid: Xid) -> None:
        id, _ = SpanningId.of(xid)
        if id.shard != self._map.own:
            raise ProtocolViolation(f"shard {id.shard} decides about {id}, not shard {self._map.own}", command="ask")
        if not self._decisions.may_commit(id):
            end.say("gone", xid, self._map.epoch)

    def _settle_soon(self, xid: Xid, outcome: str, then: Callable[[], None]) -> None:
        """End a branch in a step of its own: it may be large, and there may be many. ``then`` hears no failure."""
        step = partial(self._settle, xid, outcome, then)
        self._broker.core.steps.add(step, "the outcome of a transaction", stores=False)

    def _settle(self, xid: Xid, outcome: str, then: Callable[[], None]) -> bool:
        """End a branch with the open commit. If that is not possible now, the outcome comes again."""
        try:
            self._broker.xa.settle(xid, outcome)
        except QuireError as error:
            if xid not in self._complained:
                self._complained.add(xid)
                text = f"a transaction over several shards cannot end here and is tried again: {outcome} {xid}: {error}"
                event("transaction.stuck", text, logging.WARNING, xid=str(xid), code=error.code)
            return False
        self._broker.core.after_commit(then)
        return False


def _next_of(known: dict[K, V]) -> list[tuple[K, V]]:
    """Some of many, in turn: they are the last now."""
    some = list(islice(known.items(), MOST))
    for key, value in some:
        del known[key]
        known[key] = value
    return some


def _read(words: list[str], count: int) -> tuple[str, Xid, int]:
    """The words of a line: what is said, of which branch, and by which epoch."""
    if len(words) != count or (count > 2 and not words[2].isdigit()):
        raise ProtocolViolation("a line between processes of the cluster is not understood", command="line")
    return words[0], Xid.parse(words[1]), int(words[2]) if count > 2 else 0


class ShardTransactions:
    def __init__(self, broker: Broker, links: Links) -> None:
        self.decisions = Decisions(broker.core)
        self.outcomes = Outcomes(broker, links, self.decisions)
        self._broker = broker
        self._map = links.cluster_map

    def step(self, text: str, session: LocalSession, transaction: Transaction, then: Callable[[], None]) -> bool:
        """Make a step, as ``SpanningCommit`` says it; whether the transaction is over for the session.

        What it is about was gathered before. ``then`` is called when the step is durable, unless the session is gone.
        If the step is not possible, the transaction is open.
        """
        word, id, *rest = text.split(" ")
        if word == "enlist":
            self.decisions.enlist(SpanningId(self._map.own, self._map.epoch, bytes.fromhex(id)), session)
            then()
            return False
        session.guard.check_sent(transaction)
        if word == "prepare":
            self._prepare(Xid.parse(id), session, transaction, then)
        elif word == "decide":
            self._decide(SpanningId.parse(id), [_participant(each) for each in rest], session, transaction, then)
        else:
            raise ProtocolViolation(f"a transaction over several shards has no step {word[:20]!r}", command=word[:20])
        return True

    def _prepare(
        self, xid: Xid, session: LocalSession, transaction: Transaction, then: Callable[[], None]
    ) -> None:  # fmt: skip
        self._broker.xa.prepare_part(xid, session, transaction)
        self._broker.core.sent(session)  # if the commit fails the session ends
        self._broker.core.after_commit(_unless_closed(session, then))

    def _decide(
        self, id: SpanningId, participants: list[Participant], session: LocalSession, transaction: Transaction,
        then: Callable[[], None],
    ) -> None:  # fmt: skip
        self.decisions.check(id, session)
        transaction.commit()
        self._broker.core.sent(session)
        self.decisions.decide(id, participants, _unless_closed(session, then))


def _unless_closed(session: LocalSession, then: Callable[[], None]) -> Callable[[], None]:
    return lambda: None if session.is_closed else then()


def _participant(text: str) -> Participant:
    shard, _, epoch = text.partition(".")
    return Participant(int(shard), int(epoch))
