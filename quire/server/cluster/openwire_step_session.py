"""What the sessions of OpenWire clients in a cluster have in common: steps of transactions over several shards.

A step is a ``TransactionInfo`` of a type that clients may not use. Its text stands in the place of the connection's id.
"""

from functools import partial

from quire.protocols.openwire.commands import Command, Response, TransactionInfo
from quire.protocols.openwire.structures import ConnectionId, TransactionId
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.openwire.openwire_session import OpenWireSession

STEP = 100
"""The type of a step."""


def step_command(id: TransactionId, text: str) -> TransactionInfo:
    """The command that has a shard make a step."""
    return TransactionInfo(transaction_id=id, connection_id=ConnectionId(text), type=STEP)


class OpenWireStepSession(OpenWireSession):
    """One client.

    Attributes:
        shared: the parts of the process in transactions over several shards.
    """

    shared: ShardTransactions

    def _must_wait(self, command: Command) -> bool:
        if isinstance(command, TransactionInfo) and command.type == STEP:
            return self.must_gather(self._transactions.part(command.transaction_id))
        return super()._must_wait(command)

    def _other(self, command: Command) -> None:
        if isinstance(command, TransactionInfo) and command.type == STEP:
            self._step(command)
        else:
            super()._other(command)

    def _step(self, command: TransactionInfo) -> None:
        """Make a step; it is answered when what it stores is durable."""
        id, text = command.transaction_id, command.connection_id
        assert text is not None
        answer = Response(correlation_id=command.command_id)
        part = self._transactions.part(id)
        if self.shared.step(text.value or "", self, part, partial(self.send_command, answer)):
            self._transactions.forget(id)
