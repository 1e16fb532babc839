"""The acknowledgements of one OpenWire connection.

The client names a message by the number that the broker gave it (``MessageId.broker_sequence_id``): its sequence in its
lane. Acknowledgements of single messages that follow each other are settled together.
"""

from quire.broker.acknowledgement import AckType, acknowledge_these
from quire.broker.core.subscription import Subscription
from quire.errors import InvalidArgument, ProtocolViolation, QuireError, UnknownMessage
from quire.protocols.openwire.commands import MessageAck
from quire.protocols.openwire.plain_frames import PlainAck
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.openwire_consumer import cause_of
from quire.server.openwire.openwire_consumers import OpenWireConsumers
from quire.server.openwire.openwire_transactions import OpenWireTransactions

_ALONE = int(AckType.INDIVIDUAL)
_OF_ONE = (int(AckType.STANDARD), _ALONE)


class OpenWireAcknowledgements:
    """The acknowledgements of a session."""

    def __init__(
        self, session: ClientSession, consumers: OpenWireConsumers, transactions: OpenWireTransactions
    ) -> None:
        self._session = session
        self._consumers = consumers
        self._transactions = transactions
        self._run: list[int] = []
        self._of: Subscription | None = None

    def gather(self, ack: PlainAck) -> bool:
        """Take an acknowledgement of one message for ``settle``; False if it is more than that."""
        if ack.ack_type not in _OF_ONE:
            return False
        subscription = self._consumers.only_subscription(ack.consumer_id)
        if subscription is None:
            return False
        if subscription is not self._of:
            self.settle()
            self._of = subscription
            if ack.ack_type == _ALONE and (consumer := self._consumers.find(ack.consumer_id)) is not None:
                consumer.acknowledges_alone = True
        self._run.append(ack.sequence)
        return True

    def settle(self) -> None:
        """Settle what was gathered; of what is not in flight the client hears."""
        subscription, self._of = self._of, None
        if subscription is None:
            return
        run, self._run = self._run, []
        try:
            unknown = subscription.acknowledge(run)
        except QuireError as error:
            self._session.report(error)
            return
        if unknown:
            text = f"message {unknown[0]} is not in flight on {subscription.id}"
            self._session.report(UnknownMessage(text, sequence=unknown[0]))

    def take(self, ack: MessageAck) -> None:
        """Any acknowledgement. One of a consumer that is gone is late, and ignored.

        Raises:
            UnknownMessage: what it names is not in flight.
            InvalidArgument: the range is not what the client says, or it is of no known type.
        """
        if ack.last_message_id is None:
            raise ProtocolViolation("an acknowledgement needs the id of its last message")
        consumer = self._consumers.find(ack.consumer_id)
        if consumer is None:
            return
        try:
            type = AckType(ack.ack_type)
        except ValueError:
            text = f"{ack.ack_type} is no type of acknowledgement: 0 to 6"
            raise InvalidArgument(text, argument="ack_type") from None
        transaction = None if ack.transaction_id is None else self._transactions.working(ack.transaction_id)
        first = None if ack.first_message_id is None else ack.first_message_id.broker_sequence_id
        cause = cause_of(ack)
        for subscription, sequences in consumer.covered(ack, type, first):
            acknowledge_these(subscription, type, sequences, transaction=transaction, cause=cause)
