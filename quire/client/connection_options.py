"""The options of a connection: what ActiveMQ's URLs write as ``jms.NAME``."""

from dataclasses import dataclass, field

from quire.client.prefetch_policy import PrefetchPolicy
from quire.client.redelivery_policy import RedeliveryPolicy

WITHOUT_MEANING = (
    "alwaysSessionAsync", "consumerFailoverRedeliveryWaitPeriod", "copyMessageOnSend", "maxInflatedDataSizeRatio",
    "maxThreadPoolSize", "messagePrioritySupported", "nestedMapAndListEnabled", "objectMessageSerializationDefered",
    "optimizedMessageDispatch", "rmIdFromConnectionId", "statsEnabled", "strictCompliance", "trustAllPackages",
    "useDedicatedTaskRunner", "useVirtualThreadTaskRunner", "warnAboutUnstartedConnectionTimeout",
    "watchTopicAdvisories",
)  # fmt: skip
"""Options of ActiveMQ's Java client that are accepted and have nothing to decide in this one."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of a connection, with ActiveMQ's names and defaults; all times are in milliseconds.

    Attributes:
        client_id: whose durable subscriptions the connection may use; by default an id that is unique.
        client_id_prefix: what that id begins with.
        connection_id_prefix: what the id of the connection begins with, and so those of its messages.
        user_name: the user.
        password: the user's password.
        prefetch_policy: how many messages each kind of consumer gets ahead.
        redelivery_policy: how rolled back messages come again.
        optimize_acknowledge: ``AUTO`` sessions acknowledge in batches: at 65 % of the prefetch, or after the time-out.
        optimize_acknowledge_time_out: after which time the next message sends the batch; 0: never.
        optimized_ack_scheduled_ack_interval: how often a timer sends the batch; 0: never.
        send_acks_async: acknowledgements are not answered by the broker.
        use_async_send: sends are not answered by the broker, not even of persistent messages.
        always_sync_send: every send is answered, also of non-persistent messages and inside transactions.
        send_timeout: how long the answer to a send may take; 0: the ``request_timeout``.
        request_timeout: how long any other answer may take; 0: without a limit.
        connect_response_timeout: how long the broker may take to accept the connection; 0: the ``request_timeout``.
        close_timeout: how long the broker may take to answer a close.
        producer_window_size: how many bytes a producer may have sent that the broker has not taken; 0: no limit.
        exclusive_consumer: consumers are exclusive.
        use_retroactive_consumer: consumers are retroactive.
        dispatch_async: the broker dispatches to consumers from another thread.
        use_compression: bodies are compressed.
        disable_time_stamps_by_default: messages have no timestamp.
        non_blocking_redelivery: messages behind a rolled back one do not wait for it.
        transacted_individual_ack: transacted sessions acknowledge each message by itself.
        check_for_duplicates: messages that were finished and come again are acknowledged again, and not delivered.
        audit_depth: of how many messages of a producer the check knows.
        audit_maximum_producer_number: of how many producers of a destination.
        consumer_expiry_check_enabled: expired messages are not delivered.
        tracing: sends continue the trace of their code, and listeners that of their message (``quire.client.tracing``).
        warn_about_blocked_sends: after which time an unanswered send is reported in the log; 0: never.
    """

    client_id: str = field(default="", metadata={"option": "clientID"})
    client_id_prefix: str = field(default="", metadata={"option": "clientIDPrefix"})
    connection_id_prefix: str = field(default="", metadata={"option": "connectionIDPrefix"})
    user_name: str = ""
    password: str = field(default="", repr=False)
    prefetch_policy: PrefetchPolicy = field(default_factory=PrefetchPolicy)
    redelivery_policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    optimize_acknowledge: bool = False
    optimize_acknowledge_time_out: int = 300
    optimized_ack_scheduled_ack_interval: int = 0
    send_acks_async: bool = True
    use_async_send: bool = False
    always_sync_send: bool = False
    send_timeout: int = 0
    request_timeout: int = 60_000
    connect_response_timeout: int = 0
    close_timeout: int = 15_000
    producer_window_size: int = 0
    exclusive_consumer: bool = False
    use_retroactive_consumer: bool = False
    dispatch_async: bool = True
    use_compression: bool = False
    disable_time_stamps_by_default: bool = False
    non_blocking_redelivery: bool = False
    transacted_individual_ack: bool = False
    check_for_duplicates: bool = True
    audit_depth: int = 2048
    audit_maximum_producer_number: int = 64
    consumer_expiry_check_enabled: bool = True
    tracing: bool = False
    warn_about_blocked_sends: int = 5_000

    @property
    def acks_individually_in_transactions(self) -> bool:
        """Whether transacted consumers acknowledge each message by itself: later ones may overtake it then."""
        return self.transacted_individual_ack or self.non_blocking_redelivery
