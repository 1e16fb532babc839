"""The broker: its parts, put together. Synchronous and deterministic; the owner of the event loop drives it."""

from collections.abc import Callable

from quire.broker.advisories import Advisories
from quire.broker.bulk.staged_writes import StagedWrites
from quire.broker.core.core import Core, Target, Tracer
from quire.broker.destinations import Destinations, IdleDestinations
from quire.broker.expiry import ExpiredMessages, Expiry
from quire.broker.ledger import Ledger
from quire.broker.producer_ids import ProducerIds
from quire.broker.queues.queue import Queue
from quire.broker.routing.routing import Routing
from quire.broker.schedule import Schedule
from quire.broker.slow_consumers import SlowConsumers
from quire.broker.streams.groups.groups import Groups
from quire.broker.streams.stream import Stream
from quire.broker.topics.durables import DurablePatterns, Durables
from quire.broker.topics.topic import Topic
from quire.broker.transactions.transaction import Transaction, TransactionServices, TransactionTimeouts
from quire.broker.transactions.xa import XaRegistry
from quire.broker.turns import DiskWatch, StoreFailure, Turns
from quire.clock import Clock
from quire.cursors.spool import Spool
from quire.scheduler import Scheduler
from quire.settings import Settings
from quire.store.base import Store


class Broker:
    """The broker.

    Args:
        call_later: asks for a ``turns.planned_turn`` in so many seconds; without it commits never linger.
    """

    def __init__(
        self, settings: Settings, store: Store, spool: Spool, clock: Clock, scheduler: Scheduler,
        call_soon: Callable[[], None], call_later: Callable[[float], None] | None = None,
        tracer: Tracer | None = None,
    ) -> None:  # fmt: skip
        core = self.core = Core(settings, store, spool, clock, scheduler, call_soon)
        self.disks = DiskWatch(core)
        self.failure = StoreFailure(core, self.disks.release)
        self.producers = ProducerIds(core)
        self.destinations = Destinations(core)
        self.advisories = Advisories(core, self.destinations)
        self.ledger = Ledger(core, self.destinations, tracer)
        core.connect(self.destinations, self.advisories, self.ledger)
        self.turns = self._turns(call_later)
        self.schedule = Schedule(core, self.destinations.create_internal, lambda name: self.routing.target(name))
        self.routing = Routing(core, self.destinations, self.schedule)
        self.durables = Durables(core, self.destinations.topics)
        self.durable_patterns = DurablePatterns(core, self.durables, self.destinations.topic, self.destinations.watch)
        self.groups = Groups(core, self.destinations)
        self.destinations.load()
        self.durables.load()
        self.durable_patterns.load()
        self.groups.load()
        self.producers.load()
        Expiry(core, ExpiredMessages(core, self.destinations, self.routing.temporaries)).start()
        self.slow_consumers = SlowConsumers(core)
        self.slow_consumers.start()
        self.failure.start()
        IdleDestinations(core, self.destinations).start()
        self.transactions = TransactionServices(
            core, self.destinations, self.durables, self.routing, self.producers, TransactionTimeouts(core)
        )
        self.xa = XaRegistry(self.transactions)
        self.schedule.load()
        self.staged = StagedWrites(core, self.routing, self.producers)

    def _turns(self, call_later: Callable[[float], None] | None) -> Turns:
        return Turns(self.core, self.ledger, self.producers, self.failure, self.disks, call_later)

    @property
    def queues(self) -> dict[str, Queue]:
        return self.destinations.queues

    def queue(self, name: str) -> Queue:
        return self.destinations.queue(name)

    def topic(self, name: str) -> Topic:
        return self.destinations.topic(name)

    def stream(self, name: str) -> Stream:
        return self.destinations.stream(name)

    def target(self, destination: str) -> Target:
        """Where a message goes that is sent to a destination, as a header says it: ``/queue/a,/topic/b``."""
        return self.routing.target(destination)

    def begin_transaction(self) -> Transaction:
        return Transaction(self.transactions)

    def reload(self, settings: Settings) -> None:
        """Take other policies. Everything else of the settings stays as it was until the next start."""
        self.core.take_policies(settings.policies)
        self.destinations.policies_changed()

    def stop(self) -> None:
        """Before a clean stop, when all connections are gone: note that nothing is in flight, with the open commit."""
        for departing in list(self.core.leaving):
            departing.finish()
        for queue in self.queues.values():
            queue.stop()
        for durable in self.durables:
            durable.stop()
        for group in self.groups.all():
            group.stop()
        self.schedule.stop()
