"""Deletes destinations that are empty and unused, if their policy says so."""

from typing import TYPE_CHECKING

from quire.broker.core.core import Core
from quire.broker.destinations import Destinations
from quire.destination import DestinationKind
from quire.logs import event

if TYPE_CHECKING:
    from quire.broker.queues.queue import Queue
    from quire.broker.topics.topic import Topic

CHECK_PERIOD = 5.0
"""How often destinations are looked at, in seconds."""


class IdleDestinations:
    """Looks at destinations every five seconds; only while a policy asks for it."""

    def __init__(self, core: Core, destinations: Destinations) -> None:
        self._core = core
        self._destinations = destinations
        self._idle: dict[Queue | Topic, tuple[int, float]] = {}

    def start(self) -> None:
        """Look from now on."""
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)

    def _check(self) -> None:
        self.start()
        policies = self._core.settings.policies
        if not (policies.base.gc_inactive_destinations or policies.entries):
            return
        now = self._core.clock.monotonic()
        destinations = self._destinations
        unused: list[Queue | Topic] = [queue for queue in destinations.queues.values() if not queue.subscriptions]
        unused += [topic for topic in destinations.topics.values() if not topic.is_subscribed]
        candidates = [d for d in unused if d.policy.gc_inactive_destinations and not d.depth]
        self._idle = {candidate: self._idle_since(candidate, now) for candidate in candidates}
        for idle, (_, since) in list(self._idle.items()):
            if now - since >= idle.policy.inactive_timeout_before_gc:
                self._collect(idle)

    def _collect(self, idle: "Queue | Topic") -> None:
        destination = str(idle.destination)
        event(
            "destination.collected",
            f"the broker deleted {destination}, which was empty and unused",
            destination=destination,
        )
        kind, name = idle.destination.kind, idle.destination.name
        if kind is DestinationKind.QUEUE:
            self._destinations.delete_queue(self._destinations.queues[name])
        else:
            self._destinations.delete_topic(self._destinations.topics[name])

    def _idle_since(self, candidate: "Queue | Topic", now: float) -> tuple[int, float]:
        """How many messages had come, and since when no other has."""
        known = self._idle.get(candidate)
        return known if known is not None and known[0] == candidate.enqueued else (candidate.enqueued, now)
