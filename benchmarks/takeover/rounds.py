"""Rounds: one thing goes wrong in each; how long until a broker confirms again, and who owned the store meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import LiteralString, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from benchmarks.takeover.database import Database
from benchmarks.takeover.load import TakeoverLoad
from benchmarks.takeover.pair import Loss, Pair, PairedBroker

TRIGGER: LiteralString = """
CREATE SCHEMA {record};
CREATE TABLE {record}.log (
    n bigserial PRIMARY KEY, at timestamptz NOT NULL, epoch bigint NOT NULL, commit bigint NOT NULL,
    name text NOT NULL, pid int NOT NULL, by int NOT NULL, kind text NOT NULL
);
CREATE FUNCTION {record}.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {record}.log (at, epoch, commit, name, pid, by, kind) VALUES (
        clock_timestamp(), NEW.epoch, NEW.commit, NEW.name, NEW.pid, pg_backend_pid(),
        CASE WHEN NEW.epoch <> OLD.epoch THEN 'epoch' WHEN NEW.commit <> OLD.commit THEN 'commit' ELSE 'lease' END
    );
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER UPDATE ON {store}.owner FOR EACH ROW EXECUTE FUNCTION {record}.note();
"""

_READ: LiteralString = "SELECT n, epoch, commit, name, pid, by, kind FROM {record}.log WHERE n > %s ORDER BY n"

_NOW: LiteralString = "SELECT epoch, commit, name FROM {store}.owner"


class Note(NamedTuple):
    n: int
    epoch: int
    commit: int
    name: str  # the owner's
    pid: int  # the server's process for the owner's connection
    by: int  # the server's process that made the change
    kind: str  # epoch, commit or lease


class Commits:
    """Reads the record and looks for two owners at one time.

    The row of the owner is locked by each change, so the record is in the order of the changes.
    """

    def __init__(self, schema: str = "quire") -> None:
        self.violations: list[str] = []  # what cannot be if one alone is the owner
        self._names = {"store": Identifier(schema), "record": Identifier(f"{schema}_record")}
        self.commits = self.epochs = self.decided = self.owners = 0
        self._last = 0
        self._epoch = self._commit = 0
        self._name = ""

    def record(self, connection: psycopg.Connection) -> None:
        """Have the database keep the record from now on."""
        with connection.transaction():  # the trigger locks the table: nothing changes before the row is read
            connection.execute(SQL(TRIGGER).format(**self._names))
            (row,) = connection.execute(SQL(_NOW).format(**self._names)).fetchall()
            self._epoch, self._commit, self._name = row

    def read(self, connection: psycopg.Connection) -> None:
        for row in connection.execute(SQL(_READ).format(**self._names), [self._last]).fetchall():
            self.take(Note(*row))

    def take(self, note: Note) -> None:
        self._last = note.n
        if note.epoch < self._epoch:
            self.violations.append(f"epoch {note.epoch} comes after {self._epoch}: {note}")
        if note.kind == "epoch":
            self.epochs += 1
            self.decided += note.name == self._name
            self.owners += note.name != self._name
            self._name = note.name
            if note.commit != self._commit:
                self.violations.append(f"a new epoch begins with commit {note.commit} after {self._commit}: {note}")
        elif note.kind == "commit":
            self.commits += 1
            if note.by != note.pid:
                self.violations.append(
                    f"two owners: the connection {note.by} commits in the epoch of {note.pid}: {note}"
                )
            if note.commit != self._commit + 1:
                self.violations.append(f"commit {note.commit} comes after {self._commit}: {note}")
        self._epoch, self._commit = note.epoch, note.commit


LEASE = 3.0
"""How long the lease of a store lasts, in seconds."""

START_LIMIT = 60.0
"""How long a broker or a server may take to be there again, in seconds."""


LOSSES: tuple[Loss, ...] = ("answer", "commit", "late")
"""What happens to commits whose connections are cut."""


@dataclass(frozen=True)
class Outage:
    """What a round brought.

    Attributes:
        seconds: until the other broker confirmed what was sent then; if none had to take over, how long no broker did.
    """

    kind: str
    seconds: float
    moved: bool  # whether the other broker serves now


class Rounds:
    def __init__(self, database: Database, pair: Pair, load: TakeoverLoad, random: Random) -> None:
        self.outages: list[Outage] = []  # what was measured
        self.commits = Commits()  # what the database says of its owners
        self.kinds: dict[str, Callable[[], Awaitable[Outage]]] = {
            "kill": self._kill, "stop": self._stop, "suspend": self._suspend, "suspend-shortly": self._suspend_shortly,
            "cut-commits": self._cut_commits, "partition": self._partition, "restart-server": self._restart_server,
            "fail-over": self._fail_over, "promote": self._promote, "kill-standby": self._kill_standby,
        }  # fmt: skip
        if pair.has_networks:
            self.kinds["dead-host"] = self._dead_host
        self._database = database  # the servers
        self._pair = pair  # the brokers
        self._load = load
        self._probe = load.probe  # what measures
        self._random = random  # when and how

    async def run(self, kind: str) -> Outage:
        await asyncio.sleep(self._random.uniform(0.2, 1.0))
        outage = await self.kinds[kind]()
        self.outages.append(outage)
        await self._probe.answer(time.monotonic())
        await self.check()
        return outage

    async def check(self) -> None:
        self._load.check()
        with self._database.primary.connect() as connection:
            self.commits.read(connection)
        assert not self.commits.violations, f"the record of commits: {self.commits.violations[:5]}"
        for broker in self._pair.brokers:
            assert broker.is_alive, f"broker {broker.number} has ended:\n{broker.log[-5000:]}"
            assert "Traceback" not in broker.log, broker.log[-10_000:]

    @property
    def _owner(self) -> PairedBroker:
        return self._pair.brokers[self._probe.serving]

    async def _taken_over(self, kind: str, began: float, owner: PairedBroker) -> Outage:
        """Wait until the other broker confirms what was sent after a time."""
        other = self._pair.brokers.index(self._pair.other(owner))
        answer = await self._probe.answer(began, other, START_LIMIT)
        return Outage(kind, answer.confirmed - began, True)

    async def _gone_on(self, kind: str, began: float, owner: PairedBroker) -> Outage:
        """Wait until what is sent now is confirmed: how long nothing was, since a time."""
        answer = await self._probe.answer(time.monotonic(), limit=START_LIMIT)
        return Outage(kind, self._probe.longest_gap(began), self._pair.brokers[answer.broker] is not owner)

    async def _until_standby(self, broker: PairedBroker, seen: int) -> None:
        """Wait until a broker stands by once more than it had."""
        deadline = time.monotonic() + START_LIMIT
        while len(broker.events("broker.standby")) <= seen:
            assert time.monotonic() < deadline, f"broker {broker.number} does not stand by:\n{broker.log[-5000:]}"
            await asyncio.sleep(0.05)

    async def _start_again(self, broker: PairedBroker) -> None:
        seen = len(broker.events("broker.standby"))
        broker.start()
        await self._until_standby(broker, seen)

    async def _kill(self) -> Outage:
        """The owner is killed."""
        owner, began = self._owner, time.monotonic()
        owner.kill()
        outage = await self._taken_over("kill", began, owner)
        await self._start_again(owner)
        return outage

    async def _stop(self) -> Outage:
        """The owner is stopped in order."""
        owner, began = self._owner, time.monotonic()
        owner.process.terminate()
        outage = await self._taken_over("stop", began, owner)
        code = await asyncio.to_thread(owner.wait)
        assert code == 0, f"broker {owner.number} stopped with {code}:\n{owner.log[-5000:]}"
        await self._start_again(owner)
        return outage

    async def _suspend(self) -> Outage:
        """The owner's process stands still for longer than its lease, and goes on."""
        owner, began = self._owner, time.monotonic()
        seen = len(owner.events("broker.standby"))
        owner.suspend()
        outage = await self._taken_over("suspend", began, owner)
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        owner.resume()
        await self._until_standby(owner, seen)
        return outage

    async def _suspend_shortly(self) -> Outage:
        """The owner's process stands still for less than its lease."""
        owner, began = self._owner, time.monotonic()
        owner.suspend()
        await asyncio.sleep(self._random.uniform(0.1, LEASE / 3))
        owner.resume()
        return await self._gone_on("suspend-shortly", began, owner)

    async def _kill_standby(self) -> Outage:
        """The standby is killed: no client notices."""
        owner, began = self._owner, time.monotonic()
        standby = self._pair.other(owner)
        standby.kill()
        outage = await self._gone_on("kill-standby", began, owner)
        await self._start_again(standby)
        return outage

    async def _cut_commits(self) -> Outage:
        """Connections are cut for a while, many of them in a commit; others are ended by the server."""
        owner, began = self._owner, time.monotonic()
        while time.monotonic() - began < 2.0:
            await asyncio.sleep(self._random.uniform(0.02, 0.3))
            way = self._random.choice([*LOSSES, *LOSSES, "cut", "terminate"])
            for proxy in owner.proxies:
                if way in LOSSES:
                    proxy.loses = way
                elif way == "cut":
                    proxy.cut()
            if way == "terminate":
                self._terminate()
        for proxy in owner.proxies:
            proxy.loses = None
        return await self._gone_on("cut-commits", began, owner)

    def _terminate(self) -> None:
        """Have the server end a connection of a broker, one that does something if there is one."""
        with self._database.primary.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'quire' ORDER BY state = 'idle', random() LIMIT 1"
            )

    async def _partition(self) -> Outage:
        """The owner reaches its clients and not the servers, for longer than its lease."""
        owner, began = self._owner, time.monotonic()
        seen, lapsed = len(owner.events("broker.standby")), len(owner.events("lease.lapsed"))
        owner.cut_off()
        try:
            outage = await self._taken_over("partition", began, owner)
            await asyncio.sleep(self._random.uniform(0.0, 3.0))
        finally:
            owner.mend()
        await self._until_standby(owner, seen)
        assert len(owner.events("lease.lapsed")) > lapsed, f"the owner did not notice:\n{owner.log[-5000:]}"
        return outage

    async def _dead_host(self) -> Outage:
        """The owner's machine is lost: no packet of it arrives anywhere any more, not even the end of a connection."""
        owner, began = self._owner, time.monotonic()
        owner.suspend()  # the other broker may see the process: it must not look dead to it
        owner.cut_off(from_clients=True)
        try:
            outage = await self._taken_over("dead-host", began, owner)
        finally:
            owner.kill()
            owner.mend(from_clients=True)
        await self._start_again(owner)
        return outage

    async def _restart_server(self) -> Outage:
        """The server is killed with all its processes, and started again."""
        owner, began = self._owner, time.monotonic()
        await asyncio.to_thread(self._database.restart)
        return await self._gone_on("restart-server", began, owner)

    async def _fail_over(self) -> Outage:
        """The server is killed for good, and its synchronous replica is promoted; then it gets a new replica."""
        owner, began = self._owner, time.monotonic()
        await asyncio.to_thread(self._database.fail_over)
        outage = await self._gone_on("fail-over", began, owner)
        await asyncio.to_thread(self._database.rebuild)
        return outage

    async def _promote(self) -> Outage:
        """The synchronous replica is promoted while the server before it still runs; that one is killed later."""
        owner, before, began = self._owner, self._database.primary, time.monotonic()
        await asyncio.to_thread(self._database.promote)
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        await asyncio.to_thread(before.kill)
        outage = await self._gone_on("promote", began, owner)
        await asyncio.to_thread(self._database.rebuild)
        return outage


def ends_well(outage: Outage) -> bool:
    limits = {"kill": 5.0, "suspend": 5.0, "partition": 5.0, "dead-host": 5.0, "stop": 1.0}
    return outage.seconds <= limits.get(outage.kind, START_LIMIT)
