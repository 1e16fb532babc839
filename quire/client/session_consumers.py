"""The consumers of a session: makes them, and passes on to all of them what happens to the session."""

from collections.abc import Iterator
from random import Random

from quire import logs
from quire.client.ack_mode import AckMode
from quire.client.acknowledging import Acknowledging, AckSettings
from quire.client.consumer import Consumer, Listener
from quire.client.consumer_request import ConsumerRequest
from quire.client.listeners import Listeners
from quire.client.received_message import ReceivedMessage
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.client.session_core import SessionCore
from quire.client.session_owner import SessionOwner
from quire.errors import IllegalState, QuireError
from quire.protocols.openwire.structures import LocalTransactionId


class SessionConsumers:
    """All consumers of one session.

    Args:
        core: the parts that consumers and producers of the session share.
        owner: the connection.
        random: for delays of redeliveries.
    """

    def __init__(self, core: SessionCore, owner: SessionOwner, random: Random) -> None:
        self._core = core
        self._owner = owner
        self._random = random
        self._consumers: dict[int, Consumer] = {}
        self._closing: list[Consumer] = []
        self._listeners = Listeners(self._consumers, owner.report)

    def __iter__(self) -> Iterator[Consumer]:
        """All of them; one may close itself meanwhile."""
        return iter(list(self._consumers.values()))

    def get(self, number: int) -> Consumer | None:
        """The consumer of that number."""
        return self._consumers.get(number)

    async def make(
        self, number: int, request: ConsumerRequest, listener: Listener | None = None,
        policy: RedeliveryPolicy | None = None,
    ) -> Consumer:  # fmt: skip
        """Make a consumer, with a number that no other part of the session has; raises what the broker refuses."""
        core, destination, browser = self._core, request.destination, request.browser
        core.check_open()
        core.check_takes(destination)
        self._check_listener(listener, browser)
        optimize = self._owner.may_optimize and core.mode is AckMode.AUTO and not browser
        info = request.info(core, number, self._owner.client_id, optimize=optimize)
        if listener is not None and info.prefetch_size == 0:
            raise IllegalState("a listener needs a prefetch of 1 or more: with 0, each message is asked for by receive")
        settings = AckSettings(
            AckMode.AUTO if browser else core.mode, info.prefetch_size, destination.is_topic, optimize,
            core.options.optimize_acknowledge_time_out, core.options.acks_individually_in_transactions,
            policy or self._owner.policies.policy(destination),
        )  # fmt: skip
        consumer = Consumer(core, self, info, Acknowledging(settings, core.clock, self._random), listener)
        self._consumers[number] = consumer
        if listener is not None:
            self._listeners.start()
        try:
            await core.channel.request(info)
        except BaseException:
            consumer.end()
            raise
        return consumer

    def _check_listener(self, listener: Listener | None, browser: bool) -> None:
        if browser:
            return
        has_receivers = any(other.listener is None and not other.info.browser for other in self._consumers.values())
        if (listener is None and self._listeners.is_started) or (listener is not None and has_receivers):
            raise IllegalState("consumers of one session either all have a listener or none has: use another session")

    # Of a consumer.

    async def acknowledge(self) -> None:
        """Acknowledge everything that the session delivered."""
        for consumer in self:
            consumer.note_finished(consumer.acks.delivered)
            await self._core.settle(consumer.acks.acknowledge())

    def check_no_listener(self) -> None:
        """Raise an error if a consumer has a listener: then it takes all messages of the session."""
        if self._listeners.is_started:
            raise IllegalState("a consumer of the session has a listener: receive with another session")

    def close_after_transaction(self, consumer: Consumer) -> None:
        """It took part in the open transaction, and is closed when that ends."""
        self._closing.append(consumer)

    def removed(self, consumer: Consumer) -> None:
        """It is closed."""
        assert consumer.info.consumer_id is not None
        self._consumers.pop(consumer.info.consumer_id.value, None)

    def wake_listeners(self) -> None:
        """It may have a message for its listener."""
        self._listeners.wake()

    def listener_failed(self, message: ReceivedMessage, error: Exception) -> None:
        """Its listener raised an error."""
        where, count = str(message.destination), message.delivery_count
        logs.failure(
            "client.listener-failed",
            f"the listener of {where} raised {error!r} for message {message.id}, delivery {count}", error,
            destination=where, message_id=message.id, delivery_count=count,
        )  # fmt: skip
        self._owner.report(error, message)

    # Of the session.

    def acknowledge_in(self, transaction: LocalTransactionId) -> None:
        """Acknowledge in the transaction that is about to be committed what was delivered."""
        for consumer in self:
            self._core.post(consumer.acks.acknowledge(transaction))

    def committed(self) -> None:
        """The transaction is committed."""
        for consumer in self:
            consumer.note_finished(consumer.acks.delivered)
            consumer.acks.committed()
        self._close_waiting()

    def rolled_back(self) -> None:
        """The transaction is rolled back."""
        if self._core.error is None:
            self.deliver_again()
        self._close_waiting()

    def deliver_again(self) -> None:
        """Deliver again what was delivered and not acknowledged."""
        for consumer in self:
            consumer.rollback()

    def _close_waiting(self) -> None:
        waiting, self._closing = self._closing, []
        for consumer in waiting:
            consumer.close_now()

    async def stop_listeners(self) -> None:
        """No listener is called any more."""
        await self._listeners.stop()

    def close(self) -> None:
        """Close all of them."""
        for consumer in self:
            consumer.close_now()

    # Of the connection.

    def interrupted(self, error: QuireError) -> None:
        """The socket is lost, and will be replaced."""
        for consumer in self:
            if consumer.info.browser:
                consumer.fail(error)
            elif consumer.interrupted() and self._core.transaction.id is not None:
                self._core.transaction.is_lost = True

    def resumed(self) -> None:
        """There is a socket again."""
        for consumer in self:
            consumer.resumed()

    def switch_optimizing_off(self) -> None:
        """Acknowledge each message at once from now on."""
        for consumer in self:
            self._core.post(consumer.acks.switch_optimizing_off())

    def failed(self, error: QuireError) -> None:
        """The connection is lost for good."""
        for consumer in self:
            consumer.fail(error)
        self._listeners.cancel()
