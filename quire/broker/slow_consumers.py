"""Consumers that do not keep up: seen, and ended if the policy says so."""

import logging

from quire.broker.core.core import Core
from quire.broker.core.subscription import Dispatching, Subscription
from quire.errors import SlowConsumer
from quire.logs import event

CHECK_PERIOD = 1.0
"""How often consumers are looked at, in seconds; only those of queues that had something to dispatch since."""


class SlowConsumers:
    """Looks at consumers once a second.

    A consumer is slow while it has no credit and messages wait. Its policy says whether it is ended: after it was slow
    for a time, or too often (``abort``), or when it has not acknowledged anything for a time (``abort-slow-ack``).
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.aborted = 0

    def start(self) -> None:
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)

    def _check(self) -> None:
        self.start()
        watched = self._core.dispatch.take_watched()
        now = self._core.clock.monotonic()
        for queue in watched:
            for subscription in list(queue.subscriptions):
                self._look(queue, subscription, now)
            if queue.in_flight:
                self._core.dispatch.watch(queue)

    def _look(self, queue: Dispatching, subscription: Subscription, now: float) -> None:
        is_slow = subscription.credit <= 0 < subscription.prefetch and queue.depth > queue.in_flight
        if not is_slow:
            subscription.full_since = None
        elif subscription.full_since is None:
            subscription.full_since = now
            subscription.times_slow += 1
            self._core.advisories.slow_consumer(subscription)
        if reason := self._reason_to_abort(queue, subscription, now):
            self._abort(subscription, reason)

    def _reason_to_abort(self, queue: Dispatching, subscription: Subscription, now: float) -> str:
        policy = queue.policy
        if policy.slow_consumer_strategy == "abort" and subscription.full_since is not None:
            slow_for = now - subscription.full_since
            if 0 <= policy.max_slow_duration <= slow_for:
                return f"it was slow for {slow_for:.0f} s"
            if 0 < policy.max_slow_count < subscription.times_slow:
                return f"it was slow {subscription.times_slow} times"
        if policy.slow_consumer_strategy == "abort-slow-ack":
            silent = now - self._oldest_since(subscription, now)
            idle = policy.ignore_idle_consumers and not subscription.in_flight
            if silent >= policy.max_time_since_last_ack and not idle:
                return f"it acknowledged nothing for {silent:.0f} s"
        return ""

    def _oldest_since(self, subscription: Subscription, now: float) -> float:
        """Since when it has had its oldest message, as far as looking once a second can tell."""
        oldest = next(iter(subscription.in_flight), 0)
        if subscription.oldest[0] != oldest:
            subscription.oldest = (oldest, now)
        return subscription.oldest[1]

    def _abort(self, subscription: Subscription, reason: str) -> None:
        self.aborted += 1
        name = str(subscription.source.destination)
        facts = {"destination": name, "connection": subscription.session.name, "subscription": subscription.id}
        event("consumer.aborted", f"the broker disconnects a consumer of {name}: {reason}", logging.WARNING, **facts)
        error = SlowConsumer(f"the broker disconnected the consumer {subscription.id!r} of {name}: {reason}", **facts)
        subscription.session.end_consumer(subscription, error)
