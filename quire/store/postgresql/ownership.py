"""Which process of which machine the owner is: a broker on the same machine need not wait for a dead one's lease.

A boot of a kernel has an id, each container a namespace of process ids, and a process the time of its start: a text of
all these with the process's id is never used again. Where there is no ``/proc``, the lease decides alone.

Who may write: one row, with an epoch. It decides alone; a lease only says when another broker may take it.

A commit carries the epoch and its own number (``statements``), so a broker that was stopped, or cut off, cannot write
any more once another one has made a new epoch, whatever it believes. Time is the server's. An owner compares its own
monotonic clock, from before each renewal, only with itself.
"""

import os
import threading
import time
import uuid
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, sql

from quire.clock import Clock
from quire.errors import StoreCorrupt, StoreError, StoreLocked, StoreUnreachable
from quire.store.postgresql.database import Database, create_owner, is_lost

_PROC = Path("/proc")
_ENDED = ("Z", "X")


def own_process() -> str:
    """This process; an empty text where that cannot be told."""
    try:
        return f"{_machine()} {os.getpid()} {_stat(os.getpid())[1]}"
    except (OSError, ValueError):
        return ""


def is_dead_process(process: str) -> bool:
    """Whether a process of this machine has ended. Of other machines, and of none, it is not known."""
    try:
        *machine, pid, started = process.split()
        if " ".join(machine) != _machine():
            return False
        os.kill(int(pid), 0)  # finds what /proc may hide, those of other users
        state, start = _stat(int(pid))
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return state in _ENDED or start != started


def _machine() -> str:
    """The boot of this machine, and the namespace of its process ids."""
    return f"{(_PROC / 'sys/kernel/random/boot_id').read_text('ascii').strip()} {os.readlink(_PROC / 'self/ns/pid')}"


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process, and when it started."""
    fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return fields[0], fields[19]


LEASE_SECONDS = 3.0  # how long a lease lasts that is not renewed
OUTCOME_SECONDS = 20.0  # how long a commit whose connection was lost waits for a server that says whether it was made
_PAUSE = 0.1
_TAKEN = "another broker has taken over the store: this broker must stop"
_LOCK_TRIES = 4
_NO_EPOCH = -1
_NO_TABLE = (errors.UndefinedTable, errors.InvalidSchemaName)

_LIMITS = "SELECT set_config('lock_timeout', '500ms', true), set_config('synchronous_commit', 'on', true);"
_NEW_EPOCH = (
    f"{_LIMITS} SELECT pid FROM {{owner}} WHERE id = 1;"
    " UPDATE {owner} SET epoch = epoch + 1, token = {token}, pid = pg_backend_pid() {more}"
    " WHERE id = 1 AND ({where}) RETURNING epoch, commit"
)
_OURS = "token = {token}"
_FREE = "token = {token} OR expires = 'epoch'"
# A server that has just started gave its owner no time to renew.
_SERVER_HAS_RUN = f"pg_postmaster_start_time() < clock_timestamp() - interval '{LEASE_SECONDS} s'"
_EXPIRED = "token = {token} OR expires = 'epoch' OR (expires < clock_timestamp() AND {server_has_run})"
_DEAD = "process = {dead}"
_LOCK = f", name = {{name}}, process = {{process}}, expires = clock_timestamp() + interval '{LEASE_SECONDS} s'"
_RENEW = (
    f"{_LIMITS} UPDATE {{owner}} SET expires = clock_timestamp() + interval '{LEASE_SECONDS} s'"
    " WHERE id = 1 AND token = {token} AND name <> '' RETURNING 1"
)
_RELEASE = (
    f"{_LIMITS} UPDATE {{owner}} SET name = '', process = '', pid = 0, expires = 'epoch'"
    " WHERE id = 1 AND token = {token}"
)
_HOLDER = "SELECT name FROM {owner} WHERE id = 1 AND expires >= clock_timestamp()"
_PROCESS = "SELECT process FROM {owner} WHERE id = 1"
_HOLDER_BEFORE_FORMAT_3 = "SELECT owner FROM {lease} WHERE expires >= extract(epoch FROM clock_timestamp())"
_SHOW = "SELECT epoch, commit FROM {owner} WHERE id = 1"
_TERMINATE_BLOCKER = (
    "SELECT pg_terminate_backend(l.pid) FROM {owner} o JOIN pg_locks l ON l.transactionid = o.xmax"
    " WHERE l.locktype = 'transactionid' AND l.granted AND l.pid <> pg_backend_pid()"
)
_TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {pid} AND pid <> pg_backend_pid()"
    " AND usename = current_user AND application_name = current_setting('application_name')"
)


class _Taken(NamedTuple):
    """A new epoch: its number, that of the last commit, and the server's process of the owner before."""

    epoch: int
    commits: int
    pid: int


class Ownership:
    """The right of one store object to write, and the connection that it writes with.

    Without the lock it takes an epoch too, with its first commit, if there is no owner. So whatever two stores do,
    their commits never mix.
    """

    def __init__(self, database: Database, clock: Clock, *, durable: bool) -> None:
        self.epoch = _NO_EPOCH  # ours
        self.commits = 0  # the number of the last commit
        self.is_replicated = True  # whether no commit since this was set has ended without its synchronous replicas
        self.is_held = False  # whether we have the lock
        self.lease_ends = inf  # when the lease ends that was renewed last, on our clock; never without the lock
        self._database = database
        self._clock = clock
        self._settings = f"SET synchronous_commit TO {'on' if durable else 'off'}"
        self._token = uuid.uuid4().hex
        self._connection: psycopg.Connection | None = None
        self._side: psycopg.Connection | None = None  # for the lease, while the other one commits
        self._asking = threading.Lock()
        self._refusal: tuple[type[StoreError], str] | None = None
        self._undecided: int | None = None  # a commit that was reported as failed, and may have been made
        self._was_away = False
        self._patient_until = -inf

    @property
    def writer(self) -> psycopg.Connection:
        """The connection that commits; who gets it may write.

        Raises:
            StoreLocked: another broker has taken over.
            StoreCorrupt: the server has lost commits that it had confirmed.
            StoreUnreachable: there is no connection, or it came out that what this broker knows is not what is stored.
        """
        if self._refusal is not None:
            kind, text = self._refusal
            raise kind(text, url=self._database.place)
        if self._undecided is not None:
            self._settle(self._undecided)
        if self.epoch == _NO_EPOCH:
            taken = self._new_epoch(_FREE)
            if taken is None:
                raise StoreLocked(f"{self.lock_owner() or 'another process'} uses the store {self._database.place}")
            self.epoch, self.commits, _ = taken
        return self._connected()

    def try_lock(self, name: str) -> bool:
        """Take the lock if it is free or has expired, or is ours, or its owner was a process here that is dead."""
        ends = self._clock.monotonic() + LEASE_SECONDS
        lock = {"name": name, "process": own_process()}
        try:
            taken = self._new_epoch(_EXPIRED if self._may_take() else _FREE, _LOCK, **lock)
            if taken is None and (dead := self._dead_owner()):
                taken = self._new_epoch(_DEAD, _LOCK, dead=dead, **lock)
        except (psycopg.OperationalError, StoreUnreachable):
            self._was_away = True
            raise
        if self._was_away:  # as we were cut off, so was the owner: it gets its time to renew
            self._was_away = False
            self._patient_until = self._clock.monotonic() + LEASE_SECONDS
        if taken is None:
            return False
        self.epoch, self.commits, pid = taken
        self._refusal = self._undecided = None
        self.is_held, self.lease_ends = True, ends
        if pid:
            self._run(self._connected(), _TERMINATE, pid=pid)
        return True

    def check(self) -> bool:
        """Renew the lease. It is lost when another broker has it, or when what is stored is not what we know."""
        with self._asking:  # the store may be closed meanwhile
            if not self.is_held or self._refusal is not None:
                return False
            ends = self._clock.monotonic() + LEASE_SECONDS
            if self._ask(_RENEW) is None:
                self.is_held = False
                self._refuse(StoreLocked, _TAKEN)
                return False
            self.lease_ends = ends
            return True

    def unlock(self) -> None:
        """Release the lock. If the server does not answer, it expires."""
        with self._asking, suppress(psycopg.Error):
            if self.is_held:
                self.is_held, self.lease_ends = False, inf
                self._ask(_RELEASE)

    def lock_owner(self) -> str:
        """The name of the owner; empty if there is none."""
        try:
            with self._asking:
                found = self._ask(_HOLDER)
        except _NO_TABLE:
            return self._owner_before_format_3()
        return str(found[0]) if found else ""

    def _dead_owner(self) -> str:
        """The process of the owner, if it is known to be dead; else an empty text. A killed owner's lease goes on."""
        try:
            found = self._run(self._connected(), _PROCESS)
        except _NO_TABLE:
            return ""
        return str(found[0]) if found and is_dead_process(str(found[0])) else ""

    def _owner_before_format_3(self) -> str:
        """The broker of an earlier version that has the store, or an empty text. Its lock is another table."""
        try:
            with self._asking:
                found = self._ask(_HOLDER_BEFORE_FORMAT_3)
        except _NO_TABLE:
            return ""
        return str(found[0]) if found else ""

    def close(self) -> None:
        """Release the lock, and end the connections."""
        self.unlock()
        self.drop()
        with self._asking:
            if self._side is not None:
                self._side.close()
                self._side = None
        self.epoch = _NO_EPOCH
        self._refusal = self._undecided = None

    def drop(self) -> None:
        """End the connection that commits."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def fenced(self) -> StoreError:
        """A commit was refused: why. From now on all are."""
        found = self._run(self._connected(), _SHOW) or (0, 0)
        epoch, commits = int(found[0]), int(found[1])
        if epoch > self.epoch:
            return self._refuse(StoreLocked, _TAKEN)
        return self._refuse(StoreCorrupt, _lost(commits if epoch == self.epoch else 0, self.commits))

    def decide(self, number: int, *, patiently: bool = True) -> bool:
        """Whether the server made a commit whose connection was lost. From then on it cannot make it any more.

        The new epoch waits for a commit that is still under way, and refuses one that arrives later. When it is
        confirmed, replicas have everything before it too. If the server stays away (waited for only if ``patiently``),
        it is not known yet: the next commit asks again.
        """
        deadline = self._clock.monotonic() + (OUTCOME_SECONDS if patiently else 0.0)
        while True:
            self.drop()
            try:
                taken = self._make_epoch(_OURS)
                break
            except psycopg.Error as error:
                if self._clock.monotonic() >= deadline:
                    self._undecided = number
                    text = "failed: its connection was lost during a commit, and the result of the commit is unknown"
                    failure = self._database.failure(error, text)
                    raise StoreUnreachable(str(failure), url=self._database.place) from error
            time.sleep(_PAUSE)
        self._undecided = None
        if taken is None:
            raise self._refuse(StoreLocked, _TAKEN)
        self.epoch, commits, _ = taken
        if commits not in (number - 1, number):
            raise self._refuse(StoreCorrupt, _lost(commits, number - 1))
        self.commits = commits
        return commits == number

    def _settle(self, number: int) -> None:
        """A commit was reported as failed because nothing was known of it: if it was made, memory is wrong."""
        if self.decide(number, patiently=False):
            text = "the store has a commit that was reported as failed: this broker must read it again"
            raise self._refuse(StoreUnreachable, text)

    def _refuse(self, kind: type[StoreError], text: str) -> StoreError:
        self._refusal = kind, text
        return kind(text, url=self._database.place)

    def _may_take(self) -> bool:
        return not self._was_away and self._clock.monotonic() >= self._patient_until

    def _new_epoch(self, where: str, more: str = "", **values: str) -> _Taken | None:
        """As ``_make_epoch``, also in a database that has no owner yet."""
        try:
            return self._make_epoch(where, more, **values)
        except _NO_TABLE:
            if self._owner_before_format_3():
                return None
            create_owner(self._database)
            return self._make_epoch(where, more, **values)

    def _make_epoch(self, where: str, more: str = "", **values: str) -> _Taken | None:
        """Make a new epoch over the connection that commits; None if the row is another one's."""
        connection = self._connected()
        for tries_left in reversed(range(_LOCK_TRIES)):
            self.is_replicated = True
            try:
                statement = _NEW_EPOCH.replace("{more}", more).replace("{where}", where)
                statement = statement.replace("{server_has_run}", _SERVER_HAS_RUN)
                pid, epoch = self._rows(connection, statement, **values)[1:]
            except errors.LockNotAvailable:  # a stopped process, or a hanging connection, has the row
                if not tries_left:
                    raise
                self._run(connection, _TERMINATE_BLOCKER)
                continue
            if not self.is_replicated:
                raise psycopg.OperationalError("the server has ended the wait for its synchronous replicas")
            return None if epoch is None else _Taken(int(epoch[0]), int(epoch[1]), int(pid[0]) if pid else 0)
        raise AssertionError("the last try raises what it met")

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect(self._settings)
            self._connection.add_notice_handler(self._noticed)
        return self._connection

    def _noticed(self, notice: errors.Diagnostic) -> None:
        """The server has committed, but ended the wait for synchronous replicas: they may not have it."""
        if notice.source_function == "SyncRepWaitForLSN":
            self.is_replicated = False

    def _ask(self, statement: str) -> tuple[Any, ...] | None:
        """Ask over the other connection, one thread at a time; a lost one is replaced once."""
        for tries_left in (1, 0):
            try:
                if self._side is None or self._side.closed:
                    self._side = self._database.connect()
                return self._run(self._side, statement)
            except psycopg.Error as error:
                if not tries_left or not is_lost(error) or self._side is None:
                    raise
                self._side.close()
        raise AssertionError("the last try raises what it met")

    def _run(self, connection: psycopg.Connection, statement: str, **values: object) -> tuple[Any, ...] | None:
        """The first row of the last result."""
        return self._rows(connection, statement, **values)[-1]

    def _rows(self, connection: psycopg.Connection, statement: str, **values: object) -> list[tuple[Any, ...] | None]:
        """The first row of each result. Several statements are one request, and one transaction."""
        tables = {name: sql.SQL(f"{self._database.prefix}{name}") for name in ("owner", "lease")}
        literals = {name: sql.Literal(value) for name, value in {**values, "token": self._token}.items()}
        cursor = connection.execute(sql.SQL(statement).format(**tables, **literals))
        found = []
        while True:
            found.append(cursor.fetchone() if cursor.description else None)
            if not cursor.nextset():
                return found


def _lost(found: int, confirmed: int) -> str:
    return f"the server has only {found} of the {confirmed} commits that it confirmed"
