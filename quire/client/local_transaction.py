"""The transaction of a transacted session."""

from collections.abc import Iterator

from quire.client.channel import Channel
from quire.protocols.openwire.commands import TransactionInfo, TransactionType
from quire.protocols.openwire.structures import ConnectionId, LocalTransactionId


class LocalTransaction:
    """One transaction after the other: each begins with the first send or delivery after the one before.

    Args:
        channel: the connection's.
        connection_id: the connection.
        numbers: gives the numbers of the connection's transactions.

    Attributes:
        id: of the open transaction; None if none is open.
        is_lost: the connection was lost with messages delivered in it, so it can only be rolled back.
    """

    def __init__(self, channel: Channel, connection_id: ConnectionId, numbers: Iterator[int]) -> None:
        self._channel = channel
        self._connection_id = connection_id
        self._numbers = numbers
        self.id: LocalTransactionId | None = None
        self.is_lost = False

    def begun(self) -> LocalTransactionId:
        """The open transaction; begins one if none is open."""
        if self.id is None:
            self.id = LocalTransactionId(next(self._numbers), self._connection_id)
            self._channel.send(self._info(TransactionType.BEGIN))
        return self.id

    async def commit(self) -> None:
        """End the open transaction: the broker has done it when this returns."""
        await self._end(TransactionType.COMMIT_ONE_PHASE)

    async def rollback(self) -> None:
        """Undo the open transaction."""
        await self._end(TransactionType.ROLLBACK)

    async def _end(self, how: TransactionType) -> None:
        if self.id is None:
            return
        # Sent to no socket, it would be taken for sent and unanswered when there is one again.
        await self._channel.ready()
        info = self._info(how)
        self.id, self.is_lost = None, False
        await self._channel.request(info)

    def _info(self, how: TransactionType) -> TransactionInfo:
        return TransactionInfo(connection_id=self._connection_id, transaction_id=self.id, type=int(how))
