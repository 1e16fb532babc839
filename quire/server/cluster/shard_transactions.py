"""The parts that one process has in transactions over several shards: the steps that an entry has them make.

The entry of the client sees to the commit (``SpanningCommit``): it *enlists* the transaction at its coordinator, has
all others *prepare*, and then has the coordinator *decide*, which commits the coordinator's own part.
"""

from collections.abc import Callable

from quire.broker.broker import Broker
from quire.broker.transactions.decisions import Decisions, Participant, SpanningId, Xid
from quire.broker.transactions.transaction import Transaction
from quire.errors import ProtocolViolation
from quire.server.cluster.links import Links
from quire.server.cluster.outcomes import Outcomes
from quire.sessions.session import LocalSession


class ShardTransactions:
    """The parts of one process.

    Attributes:
        decisions: those that are made here.
        outcomes: tells and hears what becomes of transactions.
    """

    def __init__(self, broker: Broker, links: Links) -> None:
        self.decisions = Decisions(broker.core)
        self.outcomes = Outcomes(broker, links, self.decisions)
        self._broker = broker
        self._map = links.cluster_map

    def step(self, text: str, session: LocalSession, transaction: Transaction, then: Callable[[], None]) -> bool:
        """Make a step. What it is about was gathered before (``must_gather``).

        Args:
            text: the step, as ``SpanningCommit`` says it.
            transaction: what the session has done in it.
            then: is called when the step is done, and what it stores is durable; not if the session is gone then.

        Returns:
            Whether the transaction is over for the session.

        Raises:
            QuireError: the step is not possible. The transaction is open.
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
