"""What a broker has to be told again when the connection is made again. It knows no socket."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from quire.protocols.openwire.commands import (
    ConnectionInfo,
    ConsumerControl,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    ProducerInfo,
    RemoveInfo,
    SessionInfo,
    TransactionInfo,
    TransactionType,
)
from quire.protocols.openwire.messages import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    Message,
)
from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    ActiveMQTempDestination,
    BaseCommand,
    ConsumerId,
    ProducerId,
    SessionId,
    TransactionId,
)

_MESSAGES = (
    ActiveMQMessage, ActiveMQBytesMessage, ActiveMQMapMessage, ActiveMQObjectMessage, ActiveMQStreamMessage,
    ActiveMQTextMessage, ActiveMQBlobMessage,
)  # fmt: skip


@dataclass(slots=True)
class _Transaction:
    begin: TransactionInfo
    messages: list[Message] = field(default_factory=list)
    producers: dict[ProducerId, ProducerInfo] = field(default_factory=dict)
    ending: TransactionInfo | None = None


class ReplayState:
    """The state of a connection at its broker, as the commands that made it.

    Args:
        keeps_messages: also keep messages that were sent without an answer, outside of transactions.
        kept_bytes: how many bytes of them, the newest.
    """

    def __init__(self, keeps_messages: bool = False, kept_bytes: int = 0) -> None:
        self._connection: ConnectionInfo | None = None
        self._temporary: dict[ActiveMQDestination, DestinationInfo] = {}
        self._sessions: dict[SessionId, SessionInfo] = {}
        self._producers: dict[ProducerId, ProducerInfo] = {}
        self._consumers: dict[ConsumerId, ConsumerInfo] = {}
        self._transactions: dict[TransactionId, _Transaction] = {}
        self._kept: dict[int, Message] | None = {} if keeps_messages else None
        self._kept_limit = kept_bytes
        self._kept_size = 0
        self._trackers: dict[type, Callable[[Any], bool]] = {
            ConnectionInfo: self._track_connection, DestinationInfo: self._track_destination,
            SessionInfo: self._track_session, ProducerInfo: self._track_producer, ConsumerInfo: self._track_consumer,
            RemoveInfo: self._track_removal, TransactionInfo: self._track_transaction,
            **dict.fromkeys(_MESSAGES, self._track_message),
        }  # fmt: skip

    def track(self, command: BaseCommand) -> bool:
        """Note a command that is sent.

        Returns:
            Whether ``replay`` has it from now on; an answer that it waits for comes then too.
        """
        tracker = self._trackers.get(type(command))
        return tracker is not None and tracker(command)

    def refused(self, command: BaseCommand) -> None:
        """The broker refused a command: it is not replayed."""
        if isinstance(command, ConsumerInfo) and command.consumer_id is not None:
            self._consumers.pop(command.consumer_id, None)
        elif isinstance(command, ProducerInfo) and command.producer_id is not None:
            self._producers.pop(command.producer_id, None)
        elif isinstance(command, DestinationInfo) and command.destination is not None:
            self._temporary.pop(command.destination, None)

    def ended(self, command: TransactionInfo) -> None:
        """A commit or rollback was answered."""
        if command.transaction_id is not None:
            self._transactions.pop(command.transaction_id, None)

    def connection(self) -> ConnectionInfo:
        """The first command on a new socket."""
        assert self._connection is not None
        return replace(self._connection, failover_reconnect=True, response_required=True)

    def replay(self) -> list[BaseCommand]:
        """The commands that follow on ``connection``, in order; consumers have no prefetch until ``resume``."""
        consumers = [replace(info, prefetch_size=0) for info in self._consumers.values()]
        commands: list[BaseCommand] = [*self._temporary.values(), *self._sessions.values()]
        commands += [*self._producers.values(), *consumers]
        for transaction in self._transactions.values():
            if transaction.ending is None:
                commands += self._of_transaction(transaction)
        return [*commands, *(self._kept or {}).values()]

    def endings_in_doubt(self) -> list[TransactionInfo]:
        """The commits and rollbacks whose answers were lost: their transactions are forgotten, and not replayed."""
        found = {key: item.ending for key, item in self._transactions.items() if item.ending is not None}
        for key in found:
            del self._transactions[key]
        return list(found.values())

    def resume(self) -> list[ConsumerControl]:
        """What gives the consumers their prefetch back."""
        return [
            ConsumerControl(destination=info.destination, consumer_id=info.consumer_id, prefetch=info.prefetch_size)
            for info in self._consumers.values()
            if info.prefetch_size > 0
        ]

    def _of_transaction(self, transaction: _Transaction) -> Iterator[BaseCommand]:
        closed = [info for key, info in transaction.producers.items() if key not in self._producers]
        yield from closed
        yield transaction.begin
        yield from transaction.messages
        for info in closed:
            yield RemoveInfo(object_id=info.producer_id)

    def _track_connection(self, command: ConnectionInfo) -> bool:
        self._connection = command
        return True

    def _track_destination(self, command: DestinationInfo) -> bool:
        if not isinstance(command.destination, ActiveMQTempDestination):
            return False
        if command.operation_type == DestinationOperation.ADD:
            self._temporary[command.destination] = command
            return True
        self._temporary.pop(command.destination, None)
        return False

    def _track_session(self, command: SessionInfo) -> bool:
        assert command.session_id is not None
        self._sessions[command.session_id] = command
        return True

    def _track_producer(self, command: ProducerInfo) -> bool:
        assert command.producer_id is not None
        self._producers[command.producer_id] = command
        return True

    def _track_consumer(self, command: ConsumerInfo) -> bool:
        assert command.consumer_id is not None
        if not command.browser:
            self._consumers[command.consumer_id] = command
        return not command.browser

    def _track_removal(self, command: RemoveInfo) -> bool:
        removed = command.object_id
        if isinstance(removed, ConsumerId):
            self._consumers.pop(removed, None)
        elif isinstance(removed, ProducerId):
            self._producers.pop(removed, None)
        elif isinstance(removed, SessionId):
            self._sessions.pop(removed, None)
        return False

    def _track_transaction(self, command: TransactionInfo) -> bool:
        key = command.transaction_id
        if key is None:
            return False
        if command.type == TransactionType.BEGIN:
            self._transactions[key] = _Transaction(command)
        elif key in self._transactions:
            self._transactions[key].ending = command
        return True

    def _track_message(self, message: Message) -> bool:
        if message.transaction_id is not None:
            transaction = self._transactions.get(message.transaction_id)
            if transaction is None or message.producer_id is None:
                return False
            transaction.messages.append(message)
            if message.producer_id not in transaction.producers:
                info = self._producers.get(message.producer_id)
                transaction.producers[message.producer_id] = info or ProducerInfo(producer_id=message.producer_id)
            return True
        if self._kept is not None and not message.response_required:
            self._keep(self._kept, message)
        return False

    def _keep(self, kept: dict[int, Message], message: Message) -> None:
        kept[message.command_id] = message
        self._kept_size += _size(message)
        while self._kept_size > self._kept_limit and kept:
            self._kept_size -= _size(kept.pop(next(iter(kept))))


def _size(message: Message) -> int:
    return 1024 + len(message.content or b"") + len(message.marshalled_properties or b"")
