"""The policy of a consumer group, made of its stream's."""

from dataclasses import replace

from quire.broker.streams.groups.assignment import Strategy
from quire.broker.streams.groups.coordinator import RebalanceSettings
from quire.broker.streams.groups.group_definition import GroupDefinition, Order
from quire.broker.streams.groups.retry_ladder import RetryLadder
from quire.destination import MAX_NAME
from quire.settings import Policy


def rebalance_settings(policy: Policy) -> RebalanceSettings:
    """How a policy has partitions shared out."""
    return RebalanceSettings(
        Strategy(policy.rebalance_strategy), policy.rebalance_debounce, policy.rebalance_initial_delay,
        policy.member_grace, min(policy.revoke_timeout, policy.consume_timeout), tuple(policy.partition_rooms.split()),
    )  # fmt: skip


def ladder_of(policy: Policy, definition: GroupDefinition) -> RetryLadder | None:
    """How long messages that failed wait: where order counts, they hold back all others for a time."""
    if definition.order is Order.ORDERLY:
        return RetryLadder((round(policy.suspend_time * 1000),))
    return RetryLadder.parse(policy.retry_delays)


def own_policy(policy: Policy, definition: GroupDefinition, *, is_stored: bool) -> Policy:
    """The policy of a group: RocketMQ's retries and dead letters, in the words of a queue's policy.

    A reader, of which nothing is stored, has no dead letters either. What is acknowledged in a transaction has to be
    told from the rest, for its lease does not end. Where order counts, one member is looked at at a time: if several
    serve a partition (``shared``), each of them would have room for its next message.
    """
    orderly = definition.order is Order.ORDERLY
    letters = f"%DLQ%{definition.name}"
    return replace(
        policy, maximum_redeliveries=-1 if orderly else policy.retry_maximum, redelivery_at="in-place",
        blocking_redelivery=orderly, dead_letter_strategy="shared" if is_stored else "discarding",
        rebalance_message_groups=False,
        dead_letter_queue=letters if len(letters.encode()) <= MAX_NAME else policy.dead_letter_queue,
        consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0, all_consumers_exclusive_by_default=False,
        send_advisory_if_no_consumers=False, strict_order_dispatch=orderly, use_consumer_priority=False,
        use_prefetch_extension=True,
    )  # fmt: skip
