"""The world of streams: a broker with one stream, its groups, and the clients that send and consume."""

from collections.abc import Callable

from quire.broker.streams.groups.group import Group
from quire.broker.streams.stream import Stream
from quire.errors import BrokerStopping
from quire.testing.stepped import SteppedClient
from tests.simulation.checks import check_links
from tests.simulation.client import Note
from tests.simulation.life import Life
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.checks import check_counts, check_going_on, check_hands, check_memory
from tests.simulation.streams.client import Acknowledged, StreamClient
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import Key, Remembered
from tests.simulation.streams.joining import Wish, join
from tests.simulation.streams.keeping import Keeping
from tests.simulation.streams.log import Record, StreamLog
from tests.simulation.streams.lookout import Lookout
from tests.simulation.streams.moments import Moments
from tests.simulation.streams.setup import GroupSetup, StreamSetup
from tests.simulation.streams.strays import Strays
from tests.simulation.streams.truth import Truth, truths
from tests.simulation.streams.work import Place

ROUNDS = 60
"""In so many rounds of taking everything there is, and of waiting a second, everything is finished."""


class StreamWorld(Life[StreamClient]):
    """Everything that a step may act on."""

    def __init__(self, setup: StreamSetup, note: Note = lambda text: None) -> None:
        super().__init__(setup.settings(), note)
        self.setup = setup
        self.log = StreamLog()
        self.moments = Moments()
        self.groups: dict[str, Consumption] = {}
        self.life = 0
        self.commits: list[tuple[int, list[Acknowledged]]] = []
        self.strays = Strays(self.log, self.group)
        self.keeping = Keeping(setup, self.right)
        self._lookouts: dict[str, Lookout] = {}
        self._memories: dict[tuple[str, str], dict[Key, Remembered]] = {}
        with self.points.muted():
            self.stepped.broker.stream("s")
            self.stepped.run()
            self.log.look(self.store, self.stream)

    @property
    def stream(self) -> Stream:
        """The stream, as the broker has it."""
        return self.stepped.broker.destinations.streams["s"]

    def group(self, consumption: Consumption) -> Group:
        """A group, as the broker has it."""
        if consumption.is_stored:
            return self.stream.groups[consumption.name]
        return next(reader for reader in self.stepped.broker.groups.readers if reader.name == consumption.name)

    def _start(self) -> None:
        self.clock.set(0.0)  # a broker believes the clock with which it starts, for pins and retention too
        super()._start()

    def lookout(self, consumption: Consumption) -> Lookout:
        """Who watches a group."""
        return self._lookouts[consumption.name]

    # What members remember, connected or not.

    def memory(self, consumption: Consumption, id: str) -> dict[Key, Remembered]:
        """What a member has not settled, as far as it knows, and the ids to acknowledge that by."""
        return self._memories.setdefault((consumption.name, id), {})

    # A step.

    def observe(self) -> None:
        """Look at what has come, what was taken, and what is in the stream."""
        with self.points.muted():
            self.look_at_log()
            self.look_at_groups()
            for client in [client for client in self.clients.values() if client.is_gone]:
                client.listen()
                client.closed()
            self.clients = {name: client for name, client in self.clients.items() if not client.is_gone}
            now, now_ms = self.clock.monotonic(), self.right.now_ms()
            timeout = min(self.setup.revoke_timeout, self.setup.consume_timeout)
            for name in list(self.groups):
                consumption, lookout = self.groups[name], self._lookouts[name]
                if consumption.is_stored or consumption.members:
                    lookout.look(self.group(consumption), now, now_ms, timeout)
                    lookout.check_owners(self.group(consumption))
            for client in self.clients.values():
                client.listen()
            for lookout in self._lookouts.values():
                lookout.check_order()
            self._forget_readers()
            check_memory(self)
        self.commits = [
            (number, done) for number, done in self.commits if number > self.stepped.broker.core.commits_done
        ]

    def look_at_log(self) -> None:
        """Know what has come into the stream and what is gone."""
        went = self.log.look(self.store, self.stream)
        self.keeping.check(self.log, went, list(self.groups.values()))

    def look_at_groups(self) -> None:
        """Know the groups that were made meanwhile, and where they begin."""
        for name, group in self.stream.groups.items():
            if name not in self.groups:
                of = self.setup.group(name)
                assert of is not None
                begin = [part.finished.base + 1 for part in group.partitions]
                self._check_begin(of, begin)
                self.add_group(Consumption(of, self.setup, self.log, self.moments, begin))

    def add_group(self, consumption: Consumption) -> None:
        """There is a new group."""
        consumption.has_crashed = self.life > 0
        self.groups[consumption.name] = consumption
        self._lookouts[consumption.name] = Lookout(consumption, self.log)

    def _check_begin(self, of: GroupSetup, begin: list[int]) -> None:
        for first, known in zip(begin, self.log.records, strict=False):
            records = [offset for offset, record in known.items() if not record.is_leaving]
            if of.start == "earliest" and any([offset < first for offset in records]):
                raise Broken(Rule.UNWANTED, f"{of.name} begins at {first}, there are {records}")
            if of.start == "latest" and any([offset >= first for offset in records]):
                raise Broken(Rule.UNWANTED, f"{of.name} begins at {first}, {records} were there before")

    def _forget_readers(self) -> None:
        self.groups = {name: c for name, c in self.groups.items() if c.is_stored or c.members}

    # What steps do.

    def _new_client(self, name: str, connection: SteppedClient) -> StreamClient:
        return StreamClient(name, connection, self)

    def join(self, client: StreamClient, wish: Wish) -> None:
        """A client becomes a member of a group, or a reader."""
        join(self, client, wish)

    def end_commit(self, *, fails: bool) -> None:
        """End the commit under way; what transactions acknowledged comes back if it fails."""
        done = self.stepped.broker.core.commits_done
        super().end_commit(fails=fails)
        if fails and self.stepped.broker.core.commits_done > done:
            for number, acknowledged in self.commits:
                if number > done:
                    self._restore(acknowledged)
            self.commits = []
            self.keeping.commit_failed(self.stream, self.moments.durable)

    def _restore(self, acknowledged: list[Acknowledged]) -> None:
        for consumption, work, before in acknowledged:
            states = [consumption.returned(state, failed=False) for state in before]
            work.change(self.moments.next(), lambda _, states=states: states)  # type: ignore[misc]
            work.outcome = None

    # At rest.

    def check_rest(self, *, verify: bool) -> None:
        """Everything is where it should be, and nothing waits that could go on."""
        broker = self.stepped.broker
        if broker.core.store_error is None:
            self.moments.confirm(self.moments.now)
            found = truths(self.store)
            for consumption in self.groups.values():
                if consumption.is_stored:
                    self._audit(consumption, found[consumption.name])
            check_counts(self, found)
            check_hands(self)
            check_going_on(self)
        if verify:
            check_links(self.store)

    def _audit(self, consumption: Consumption, truth: Truth) -> None:
        """The store has what became of each message."""
        consumption.is_purging = truth.is_purging
        for record in self._records(consumption):
            state = truth.state_of(record)
            work = consumption.work(record)
            if state not in work.possible:
                raise Broken(Rule.STORED, f"{record} is {state} for {consumption}, and should be {set(work.possible)}")
            work.is_in(state, self.moments.now)
        truth.check_nothing_else({record.place for records in self.log.records for record in records.values()})

    def _records(self, consumption: Consumption) -> list[Record]:
        return [work.record for p in range(len(self.log.records)) for work in consumption.works(p)]

    # Crashes.

    def stop(self) -> None:
        """The broker stops cleanly, and is started again."""
        self.note("the broker stops")
        self.store.mend()  # a broker that cannot read its store does not stop cleanly
        self.stepped.run()
        self.observe()
        for client in self.clients.values():
            client.closed(lost=False)
        for stepped_client in self.stepped.clients:
            stepped_client.session.stop(BrokerStopping("the broker stops"))
        self.stepped.broker.stop()
        self.stepped.run()
        if self.stepped.broker.core.store_error is None:
            self.moments.confirm(self.moments.now)
        with self.points.muted():
            self.died()
        self.restart()

    def died(self) -> None:
        """The broker is dead: clients have what was written to them, and no connection."""
        self.look_at_log()
        super().died()
        for lookout in self._lookouts.values():
            lookout.check_order()

    def started(self) -> None:
        """A new broker is there: everything is as it was at some moment since the last durable one."""
        self.life += 1
        self.commits = []
        if "s" not in self.stepped.broker.destinations.streams:
            raise Broken(Rule.LOST, "the stream is gone")
        self.look_at_log()
        self.log.crash()
        self.keeping.crash(self.stream, self.moments.durable)
        found = truths(self.store)
        for name, consumption in list(self.groups.items()):
            consumption.crash()
            self._lookouts[name].crash(self.moments.durable)
            if consumption.is_stored and name in found:
                self._resume(consumption, found[name])
            else:
                del self.groups[name]
                if consumption.is_stored and consumption.created <= self.moments.durable:
                    raise Broken(Rule.LOST, f"the group {name} is gone")
        self.moments.confirm(self.moments.now)
        self.look_at_groups()
        self._await_members()

    def _resume(self, consumption: Consumption, truth: Truth) -> None:
        for record in self._records(consumption):
            work, state = consumption.work(record), truth.state_of(record)
            allowed = work.after_crash(self.moments.durable)
            if state not in allowed:
                rule = Rule.ATTEMPTS
                if not any([other.is_open for other in allowed]):
                    rule = Rule.AGAIN
                elif state.place is Place.DONE:
                    rule = Rule.LOST
                raise Broken(rule, f"after a crash {record} is {state} for {consumption}, it was {set(allowed)}")
            if work.outcome is not None:
                work.outcome.decide(state.place is Place.DONE, f"{record} is {state} for {consumption}")
                work.outcome = None
            work.is_in(state, self.moments.now)
        consumption.resumed()
        consumption.is_purging = truth.is_purging

    def _await_members(self) -> None:
        """Members with a name are awaited, with the partitions they had."""
        for consumption in self.groups.values():
            for status in self.group(consumption).coordinator.members:
                consumption.await_member(status.id, status.partitions, self.clock.monotonic() + self.setup.grace)

    # The end.

    def _take_everything(self, is_done: Callable[[], bool]) -> None:
        """Let all members acknowledge all they get, until there is nothing more, or only what waits for its time."""
        for _ in range(ROUNDS):
            while any([client.settle_all() for client in self.clients.values()]):
                self.rest_now()
            if is_done():
                return
            self.do(lambda world: world.stepped.advance(1.0))
            self.rest_now()
        raise Broken(Rule.STALL, f"after {ROUNDS} s there is something left: {self._left()}")

    def _left(self) -> list[str]:
        return [
            f"{work.record} for {c}" for c in self.groups.values() for p in range(len(self.log.records))
            for work in c.works(p) if work.may_be_open
        ]  # fmt: skip

    def _drain(self) -> None:
        """A member for each group takes everything."""
        for name, consumption in self.groups.items():
            self.join(self.client(f"drain-{name}"), Wish(name, order=consumption.of.order, color=consumption.of.color))
            self.rest_now()
        self._take_everything(lambda: not self._left())
        self._everybody_leaves()
        self.log.check_nothing_lost()
        self._leave()

    def _leave(self) -> None:
        """Nobody is there: remove the groups and the stream, and see that nothing remains of them."""
        for _ in range(ROUNDS):  # retention goes in small steps
            if not self.keeping.late(self.log):
                break
            self.do(lambda world: world.stepped.advance(1.0))
            self.rest_now()
        broker = self.stepped.broker
        with self.points.muted():
            check_links(self.store)
            if late := self.keeping.late(self.log):
                raise Broken(Rule.RETENTION, f"{late} are due and not gone")
            if broker.core.memory.used or broker.core.transaction_bytes or broker.core.flow.holds:
                raise Broken(Rule.MEMORY, f"nobody is there, and {broker.core.memory.used} bytes are resident")
            for group in list(self.stream.groups.values()):
                broker.groups.delete(group)
            broker.destinations.delete_stream(self.stream)
            self.stepped.run()
            kinds = [stored for stored in self.store.destinations() if stored.kind != "queue"]
            marks = [key for prefix in ("group/", "stream/") for key, _ in self.store.marks(prefix)]
            if kinds or marks:
                raise Broken(Rule.LEFT, f"the stream is deleted, and there are {kinds} and {marks}")
            counted = sum([queue.bytes for queue in broker.queues.values()])
            if broker.core.stored_bytes != counted:
                raise Broken(Rule.COUNT, f"the broker counts {broker.core.stored_bytes} bytes, its queues {counted}")
