"""The processes of one broker: which shards they run or wait for."""

from collections.abc import Callable
from typing import Protocol

from quire.clock import Clock
from quire.cluster.cluster_map import FRONT, LivingBroker, Peer, Pin
from quire.cluster.plan import ShardState, plan
from quire.cluster.view import PinRow, ShardRow, View
from quire.logs import event
from quire.server.cluster.shard_messages import Map, Running, Waiting

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""How long a shard is left alone whose process ended by itself, in seconds: twice as long each time."""

CALM = 60.0
"""A process that has lived so long, in seconds, was sound."""


class ShardProcess(Protocol):
    """A process, as the crew sees it. It calls ``Crew.reported`` and ``Crew.ended``."""

    def serve(self, shard: int) -> None:
        """Have it wait for a shard, then run it; ``FRONT`` for one without a shard."""

    def tell_map(self, map: Map) -> None:
        """Tell it who owns what."""

    def reload(self) -> None:
        """Have it read the settings again."""

    def stop(self) -> None:
        """Have it end cleanly; it is killed if that takes too long."""


class Member:
    """One process and what is known of it."""

    def __init__(self, process: ShardProcess, shard: int, now: float) -> None:
        self.process = process
        self.shard = shard
        self.state = ShardState.WAITING
        self.stands_by = False
        self.running: Running | None = None
        self.is_announced = False
        self.began = now


class Crew:
    """All processes of a broker. The supervisor drives it by calls; it waits for nothing.

    Args:
        name: the name of the broker in its cluster.
        shards: how many shards the cluster has.
        spawn: starts a process.

    Attributes:
        is_ending: whether all processes are being stopped.
    """

    def __init__(self, name: str, shards: int, clock: Clock, spawn: Callable[[], ShardProcess]) -> None:
        self.name = name
        self.is_ending = False
        self._shards = shards
        self._clock = clock
        self._spawn = spawn
        self._members: dict[int, Member] = {}
        self._gone: list[tuple[int, int]] = []  # shards and epochs whose processes ended
        self._given: dict[str, PinRow] = {}  # by placement key, what shards have given away
        self._pauses: dict[int, tuple[float, float]] = {}  # until when a shard is left alone, and how long that is
        self._map = Map({}, {}, ())
        self._is_leaving = False  # the broker: clients find another one
        self._gives_last = False  # the last shard that runs here is to be given up

    # What the supervisor tells the database.

    @property
    def standing_by(self) -> frozenset[int]:
        """The shards that processes wait for. Those that are just started may need seconds until they do."""
        waiting = self._in_state(ShardState.WAITING)
        return frozenset([shard for shard in waiting if self._members[shard].stands_by]) - {FRONT}

    @property
    def running(self) -> list[int]:
        """The shards that run here."""
        return [shard for shard in self._in_state(ShardState.RUNNING) if shard != FRONT]

    @property
    def is_giving_up(self) -> bool:
        """Whether a process is being stopped."""
        return ShardState.STOPPING in [member.state for member in self._members.values()]

    @property
    def is_empty(self) -> bool:
        """Whether there is no process."""
        return not self._members

    def to_announce(self) -> list[ShardRow]:
        """The shards whose new owner the database does not know yet."""
        return [
            ShardRow(shard, self.name, at.epoch, at.address, at.http, at.pid, 0.0)
            for shard, member in self._members.items()
            if (at := member.running) is not None and not member.is_announced and shard != FRONT
        ]

    def announced(self, row: ShardRow, accepted: bool) -> None:
        """The database has taken a row, or knows a later owner: then this one has lost its lock."""
        member = self._members.get(row.shard)
        if member is None or member.running is None or member.running.epoch != row.epoch:
            return
        member.is_announced = True
        if not accepted:
            event("cluster.fenced", f"shard {row.shard} has a later owner than this process: it stops", shard=row.shard)
            self._stop(member)

    def to_withdraw(self) -> list[tuple[int, int]]:
        """The shards with the epochs of processes that ended, until ``withdrawn``."""
        return list(self._gone)

    def withdrawn(self, shard: int, epoch: int) -> None:
        """The database knows that a process has ended."""
        self._gone.remove((shard, epoch))

    def to_publish(self) -> list[PinRow]:
        """The pins that shards have stored, until ``published``."""
        return list(self._given.values())

    def published(self, row: PinRow) -> None:
        """The database knows a pin."""
        if self._given.get(row.key) == row:
            del self._given[row.key]

    # What happens.

    def take(self, view: View) -> None:
        """Do what the database makes necessary now."""
        self._tell_map(view)
        for shard, row in view.shards.items():  # another process announced itself although this one has the lock
            member = self._members.get(shard)
            if member is not None and member.running is not None and member.running.epoch > row.epoch:
                member.is_announced = False
        if self.is_ending:
            return
        own = {shard: member.state for shard, member in self._members.items() if shard != FRONT}
        todo = plan(view, self._shards, self.name, own)
        ours, running = view.brokers.get(self.name), self.running
        self._is_leaving = ours is not None and ours.leaving
        self._gives_last = bool(running) and set(running) <= set(todo.stop) and not self._is_leaving
        for shard in todo.stop:
            if own[shard] is ShardState.WAITING or not self._gives_last or self._has_front:
                self._stop(self._members[shard])
        for shard in todo.start:
            if self._may_start(shard):
                self._start(shard)
        self._keep_front()

    def reported(self, process: ShardProcess, report: Waiting | Running) -> None:
        """A process waits for its shard, or owns it and serves clients."""
        member = self._member_of(process)
        if member is None or member.state is ShardState.STOPPING:
            return
        if isinstance(report, Waiting):
            member.stands_by = True
            return
        member.state, member.running, running = ShardState.RUNNING, report, report
        if member.shard != FRONT:
            text = f"shard {member.shard} runs here, epoch {running.epoch}, process {running.pid}"
            event("cluster.shard-running", text, shard=member.shard, epoch=running.epoch, pid=running.pid)
        self._keep_front()

    def given(self, row: PinRow) -> None:
        """A shard has given a placement key to another one."""
        known = self._given.get(row.key)
        if known is None or known.version < row.version:
            self._given[row.key] = row

    def ended(self, process: ShardProcess) -> None:
        """A process has ended, told to or not."""
        member = self._member_of(process)
        if member is None:
            return
        del self._members[member.shard]
        if member.running is not None and member.shard != FRONT:
            self._gone.append((member.shard, member.running.epoch))
        if member.state is ShardState.STOPPING:
            return
        now = self._clock.monotonic()
        last = self._pauses.get(member.shard, (0.0, FIRST_PAUSE / 2))[1]
        pause = FIRST_PAUSE if now - member.began > CALM else min(last * 2, LONGEST_PAUSE)
        self._pauses[member.shard] = (now + pause, pause)
        what = "the process without a shard" if member.shard == FRONT else f"the process of shard {member.shard}"
        event("cluster.process-ended", f"{what} has ended: another one is started", shard=member.shard)

    def stop_rest(self) -> None:
        """Stop all processes, whether others take their shards or not."""
        self.is_ending = True
        for member in list(self._members.values()):
            self._stop(member)

    def reload(self) -> None:
        """The settings are to be read again."""
        for member in self._members.values():
            member.process.reload()

    # Inside.

    @property
    def _has_front(self) -> bool:
        """Whether a process without a shard serves clients."""
        front = self._members.get(FRONT)
        return front is not None and front.state is ShardState.RUNNING

    def _in_state(self, state: ShardState) -> list[int]:
        return [shard for shard, member in self._members.items() if member.state is state]

    def _member_of(self, process: ShardProcess) -> Member | None:
        return next((member for member in self._members.values() if member.process is process), None)

    def _may_start(self, shard: int) -> bool:
        return self._pauses.get(shard, (0.0, 0.0))[0] <= self._clock.monotonic()

    def _start(self, shard: int) -> None:
        process = self._spawn()
        self._members[shard] = Member(process, shard, self._clock.monotonic())
        process.tell_map(self._map)
        process.serve(shard)

    def _stop(self, member: Member) -> None:
        if member.state is not ShardState.STOPPING:
            member.state = ShardState.STOPPING
            member.process.stop()

    def _keep_front(self) -> None:
        """Have a process without a shard before no other one serves clients, and as long as that is so."""
        front = self._members.get(FRONT)
        if self.running and not self._gives_last:
            if front is not None:
                self._stop(front)
        elif front is None and not self._is_leaving and self._may_start(FRONT):
            self._start(FRONT)

    def _tell_map(self, view: View) -> None:
        peers = {
            row.shard: Peer(row.address, row.epoch, row.broker, row.http)
            for row in view.shards.values()
            if row.address and row.broker in view.brokers
        }
        pins = {row.key: Pin(row.shard, row.version) for row in view.pins.values()}
        rows = [view.brokers[name] for name in sorted(view.brokers)]
        brokers = tuple([LivingBroker(row.name, row.stomp, row.openwire, row.http) for row in rows])
        if (map := Map(peers, pins, brokers)) != self._map:
            self._map = map
            for member in self._members.values():
                member.process.tell_map(map)
