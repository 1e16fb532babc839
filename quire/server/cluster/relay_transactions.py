"""The local transactions of a STOMP client in a cluster: each is of the shard of what it is first about."""

from collections.abc import Callable

from quire.broker.transactions.transaction_services import check_room
from quire.errors import TransactionSpansShards, UnknownTransaction
from quire.protocols.stomp.frames import Head
from quire.server.cluster.stomp_relay import Outcome, StompRelay

HERE = -2
"""Where a transaction is that the client's own session has. At the own shard there may be a virtual connection too."""


class RelayTransactions:
    """The transactions of one client.

    Args:
        begin: begins one at the own session.
    """

    def __init__(self, relay: StompRelay, begin: Callable[[Head], None]) -> None:
        self._relay = relay
        self._begin = begin
        self._open: dict[str, int | None] = {}  # the shard of each, or HERE; None while nothing was done in it

    def begin(self, head: Head) -> Outcome:
        """A BEGIN frame: the transaction begins where it is first about something."""
        name = head.headers["transaction"]
        check_room(len(self._open))
        if name in self._open:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        self._open[name] = None
        return Outcome.DONE

    def place(self, name: str, shard: int) -> int:
        """Where a transaction sends to a shard: to the own one from here, or as it has acknowledged what came from it.

        Raises:
            UnknownTransaction: there is none of this name.
        """
        if shard != self._relay.own:
            return shard
        known = self._place_of(name)
        is_here = known == HERE if known is not None else shard not in self._relay.shards
        return HERE if is_here else shard

    def join(self, name: str, place: int) -> None:
        """Something at a shard, or here, is part of a transaction. The shard has room for the frame that begins it.

        Raises:
            TransactionSpansShards: it is about another one.
            UnknownTransaction: there is none of this name.
        """
        known = self._place_of(name)
        if known is None:
            head = Head(b"BEGIN", (("transaction", name),))
            if place == HERE:
                self._begin(head)
            else:
                self._relay.pass_to(place, head, None)
            self._open[name] = place
        elif known != place:
            what = "destinations of several shards, or messages of a wildcard and of another subscription"
            text = f"the transaction {name[:60]!r} is about {what}"
            raise TransactionSpansShards(text, transaction=name[:60])

    def end(self, head: Head, receipt: bytes | None) -> Outcome:
        """A COMMIT or ABORT frame."""
        name = head.headers["transaction"]
        place = self._place_of(name)
        if place == HERE:
            return Outcome.OWN
        if place is not None and self._relay.pass_to(place, head, receipt) is Outcome.WAITS:
            return Outcome.WAITS
        del self._open[name]
        return Outcome.DONE if place is None else Outcome.PASSED

    def ended(self, name: str) -> None:
        """A transaction that was here has ended."""
        self._open.pop(name, None)

    def _place_of(self, name: str) -> int | None:
        try:
            return self._open[name]
        except KeyError:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60]) from None
