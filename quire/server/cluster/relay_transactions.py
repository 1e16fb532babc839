"""The local transactions of a STOMP client in a cluster: each is of the shard of what it is first about."""

from collections.abc import Callable

from quire.broker.transactions.transaction_services import check_room
from quire.errors import TransactionSpansShards, UnknownTransaction
from quire.protocols.stomp.frames import Head
from quire.server.cluster.stomp_relay import Outcome, StompRelay


class RelayTransactions:
    """The transactions of one client.

    Args:
        begin: begins one at the own shard.
    """

    def __init__(self, relay: StompRelay, begin: Callable[[Head], None]) -> None:
        self._relay = relay
        self._begin = begin
        self._open: dict[str, int | None] = {}  # the shard of each; None while nothing was done in it

    def begin(self, head: Head) -> Outcome:
        """A BEGIN frame: the transaction begins where it is first about something."""
        name = head.headers["transaction"]
        check_room(len(self._open))
        if name in self._open:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        self._open[name] = None
        return Outcome.DONE

    def join(self, name: str, shard: int) -> None:
        """Something at a shard is part of a transaction. The shard has room for the frame that begins it there.

        Raises:
            TransactionSpansShards: it is about another shard.
            UnknownTransaction: there is none of this name.
        """
        known = self._shard_of(name)
        if known is None:
            head = Head(b"BEGIN", (("transaction", name),))
            if shard == self._relay.own:
                self._begin(head)
            else:
                self._relay.pass_to(shard, head, None)
            self._open[name] = shard
        elif known != shard:
            text = f"the transaction {name[:60]!r} is about destinations of the shards {known} and {shard}"
            raise TransactionSpansShards(text, transaction=name[:60], shards=[known, shard])

    def end(self, head: Head, receipt: bytes | None) -> Outcome:
        """A COMMIT or ABORT frame."""
        name = head.headers["transaction"]
        shard = self._shard_of(name)
        if shard == self._relay.own:
            return Outcome.OWN
        if shard is not None and self._relay.pass_to(shard, head, receipt) is Outcome.WAITS:
            return Outcome.WAITS
        del self._open[name]
        return Outcome.DONE if shard is None else Outcome.PASSED

    def ended(self, name: str) -> None:
        """A transaction of the own shard has ended."""
        self._open.pop(name, None)

    def _shard_of(self, name: str) -> int | None:
        try:
            return self._open[name]
        except KeyError:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60]) from None
