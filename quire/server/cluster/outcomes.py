"""What shards tell each other of transactions that have parts at several of them, over their links.

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
from quire.broker.transactions.decisions import Decision, Decisions, SpanningId, Xid
from quire.broker.transactions.xa import XaState
from quire.cluster.link_frames import Opening
from quire.cluster.virtual_connection import VirtualConnection
from quire.errors import LimitExceeded, ProtocolViolation, QuireError
from quire.logs import event
from quire.server.cluster.line_end import LineEnd
from quire.server.cluster.links import Links

PROTOCOL = "outcomes"
"""What is spoken on these virtual connections."""

TICK = 1.0
"""How often outcomes that are missing are asked for, and told again, in seconds."""

MOST = 500
"""For how many branches at once."""

K = TypeVar("K")
V = TypeVar("V")


class Outcomes:
    """The outcomes that one process tells and hears.

    Args:
        links: lead to the other shards, and to the own one.
        decisions: those that are made here.
    """

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
        """Another process asks, or tells."""
        end = connection.end = LineEnd(self._answer, lambda end: self._asking.pop(end, None))
        end.connection = connection
        self._asking[end] = None

    def stop(self) -> None:
        """The process stops: end all connections."""
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
        """Tell participants to commit."""
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
        """An answer has come."""
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
        """End a branch in a step of its own: it may be large, and there may be many.

        Args:
            then: is called when that is stored, or has failed.
        """
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
    """The words of a line: what is said, of which branch, and by which epoch.

    Raises:
        ProtocolViolation: it is no such line.
        InvalidArgument: the branch has no name.
    """
    if len(words) != count or (count > 2 and not words[2].isdigit()):
        raise ProtocolViolation("a line between processes of the cluster is not understood", command="line")
    return words[0], Xid.parse(words[1]), int(words[2]) if count > 2 else 0
