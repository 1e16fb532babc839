"""The database of a cluster: who its brokers are, who owns which shard, what is pinned.

Brokers on several machines have it in PostgreSQL. A broker that runs several shards on one machine is a cluster of one,
and has it in a file of SQLite beside its stores: no other broker can have its name, so it waits for no lease of its
own.

All calls wait for the server, so they are made on a thread. What is here decides nothing about messages: the lock of a
shard's store does.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from quire.cluster.cluster_map import BrokerRow, ClusterFacts, PinRow, ShardRow, View
from quire.errors import InvalidSettings, QuireError, StoreUnreachable, UnknownBroker

LEASE = 3.0
"""How long a broker counts as living after it was heard of, in seconds."""

ANSWER_LIMIT = 2
"""How long the server may take to connect or to answer, in seconds."""

SCHEMA = "quire_cluster"
"""The schema of the tables, in the database of the cluster."""

_FORMING = 0x51756963
_METADATA = sa.MetaData(schema=SCHEMA)


def _table(name: str, /, **columns: Any) -> sa.Table:
    """A table, the first of whose columns is its key."""
    key = next(iter(columns))
    made = [
        sa.Column(each, kind, primary_key=each == key, autoincrement=False, nullable=False)
        for each, kind in columns.items()
    ]
    return sa.Table(name, _METADATA, *made)


# The secret, by which links know each other, is random and made once. Lists are separated by spaces.
CLUSTER = _table("cluster", id=sa.Integer, shards=sa.Integer, secret=sa.LargeBinary, stores=sa.Text, formed=sa.Double)
# ``run`` is random, by the run of the broker's process; ``placement`` a digest of the settings that placement depends
# on. Times are those of the server's clock.
BROKERS = _table(
    "brokers", name=sa.Text, run=sa.Text, stomp=sa.Text, openwire=sa.Text, http=sa.Text, version=sa.Text,
    placement=sa.Text, standing_by=sa.Text, leaving=sa.Boolean, expires=sa.Double,
)  # fmt: skip
# The broker is the last owner; ``preferred`` is the one where an operator wants the shard.
SHARDS = _table(
    "shards", shard=sa.Integer, broker=sa.Text, epoch=sa.BigInteger, address=sa.Text, http=sa.Text, pid=sa.BigInteger,
    since=sa.Double, preferred=sa.Text,
)  # fmt: skip
PINS = _table("pins", key=sa.Text, destination=sa.Text, shard=sa.Integer, version=sa.BigInteger)


class Directory:
    """The tables of one cluster, in PostgreSQL or, for a cluster of one broker, in a file of SQLite."""

    def __init__(self, url: str) -> None:
        try:
            place = make_url(url)
        except ArgumentError as error:  # its text may show the password
            raise _no_postgresql() from error
        self._is_local = place.get_backend_name() == "sqlite"
        self._insert: Callable[[sa.Table], Any]
        if self._is_local:
            self._engine, self._insert = _local_engine(place), sqlite.insert
            self._now = sa.func.julianday("now") * 86_400.0 - _JULIAN
        elif place.get_backend_name() in ("postgresql", "postgres"):
            self._engine, self._insert = _server_engine(place), postgresql.insert
            self._now = sa.extract("epoch", sa.func.clock_timestamp())
        else:
            raise _no_postgresql()
        self.shown_url = self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self._engine.dispose()

    def form(self, shards: int, stores: tuple[str, ...]) -> ClusterFacts:
        """Form the cluster if it is not there, with so many shards and their databases: what it then has, for good."""
        with self._transaction() as connection:
            if not self._is_local:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_FORMING)))
                connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
            _METADATA.create_all(connection)
            facts = {"shards": shards, "secret": secrets.token_bytes(32), "stores": " ".join(stores)}
            new = self._insert(CLUSTER).values(id=1, formed=self._now, **facts)
            connection.execute(new.on_conflict_do_nothing())
            return _facts(connection)

    def facts(self) -> ClusterFacts:
        with self._transaction() as connection:
            return _facts(connection)

    def renew(self, row: BrokerRow) -> bool:
        """Say that a broker lives, for a lease; false if another process has its name. It may be refused."""
        values = {
            "run": row.run, "stomp": row.stomp, "openwire": row.openwire, "http": row.http, "version": row.version,
            "placement": row.placement, "standing_by": " ".join(map(str, sorted(row.standing_by))),
            "expires": self._now + LEASE,
        }  # fmt: skip
        again = self._insert(BROKERS).values(name=row.name, leaving=row.leaving, **values)
        # A broker that starts anew does not leave any more; an operator may have told a running one to.
        leaving = (BROKERS.c.leaving & (BROKERS.c.run == row.run)) | again.excluded.leaving
        renewal = again.on_conflict_do_update(
            index_elements=["name"], set_={**values, "leaving": leaving},
            where=sa.true() if self._is_local else sa.or_(BROKERS.c.run == row.run, BROKERS.c.expires < self._now),
        )  # fmt: skip
        with self._transaction() as connection:
            if not self._is_local:
                self._check_placement(connection, row)
            return connection.execute(renewal.returning(BROKERS.c.name)).first() is not None

    def remove(self, row: BrokerRow) -> None:
        with self._transaction() as connection:
            ours = (BROKERS.c.name == row.name) & (BROKERS.c.run == row.run)
            connection.execute(sa.delete(BROKERS).where(ours))

    def read(self) -> View:
        with self._transaction() as connection:
            living = connection.execute(sa.select(BROKERS).where(BROKERS.c.expires >= self._now)).all()
            owned = connection.execute(sa.select(SHARDS)).all()
            pinned = connection.execute(sa.select(PINS)).all()
        return View(
            {row.name: _broker(row) for row in living},
            {row.shard: ShardRow(*row) for row in owned},
            {row.key: PinRow(*row) for row in pinned},
        )

    def announce(self, row: ShardRow) -> bool:
        """A process owns a shard; false if one with a later epoch does."""
        values = {
            "broker": row.broker, "epoch": row.epoch, "address": row.address, "http": row.http, "pid": row.pid,
            "since": self._now,
        }  # fmt: skip
        new = self._insert(SHARDS).values(shard=row.shard, preferred="", **values)
        taken = new.on_conflict_do_update(index_elements=["shard"], set_=values, where=SHARDS.c.epoch <= row.epoch)
        with self._transaction() as connection:
            return connection.execute(taken.returning(SHARDS.c.shard)).first() is not None

    def withdraw(self, shard: int, epoch: int) -> None:
        with self._transaction() as connection:
            ours = (SHARDS.c.shard == shard) & (SHARDS.c.epoch == epoch)
            connection.execute(sa.update(SHARDS).where(ours).values(address="", http="", pid=0))

    def pin(self, row: PinRow) -> None:
        """A shard has given a placement key to another one; nothing if a later version is known."""
        new = self._insert(PINS).values(row._asdict())
        later = new.on_conflict_do_update(
            index_elements=["key"], set_=row._asdict(), where=PINS.c.version < row.version
        )  # fmt: skip
        with self._transaction() as connection:
            connection.execute(later)

    def prefer(self, shard: int, broker: str) -> None:
        """An operator wants a shard at a broker; an empty name: at any."""
        values = {"broker": "", "epoch": 0, "address": "", "http": "", "pid": 0, "since": self._now}
        new = self._insert(SHARDS).values(shard=shard, preferred=broker, **values)
        with self._transaction() as connection:
            connection.execute(new.on_conflict_do_update(index_elements=["shard"], set_={"preferred": broker}))

    def ask_to_leave(self, broker: str) -> None:
        """Have a broker give up its shards and stop; ``UnknownBroker`` if no broker of this name lives."""
        living = (BROKERS.c.name == broker) & (BROKERS.c.expires >= self._now)
        with self._transaction() as connection:
            if not connection.execute(sa.update(BROKERS).where(living).values(leaving=True)).rowcount:
                raise UnknownBroker(f"no broker {broker!r} lives in the cluster", broker=broker)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                if not self._is_local:
                    connection.exec_driver_sql(f"SET LOCAL statement_timeout TO '{ANSWER_LIMIT}s'")
                yield connection
        except QuireError:
            raise
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip()
            text = f"the database of the cluster, {self.shown_url}, does not answer: {reason}"
            raise StoreUnreachable(text, url=self.shown_url) from error

    def _check_placement(self, connection: sa.Connection, row: BrokerRow) -> None:
        """Refuse a broker that is about to join those who place destinations otherwise: each would look elsewhere."""
        lives = (BROKERS.c.name == row.name) & (BROKERS.c.run == row.run) & (BROKERS.c.expires >= self._now)
        if connection.execute(sa.select(BROKERS.c.name).where(lives)).first() is not None:
            return
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_FORMING)))  # no two join at once
        others = (
            (BROKERS.c.name != row.name) & (BROKERS.c.expires >= self._now) & (BROKERS.c.placement != row.placement)
        )
        if (other := connection.execute(sa.select(BROKERS.c.name).where(others)).first()) is not None:
            text = (
                f"broker {other.name!r} has other settings of destinations: [virtual], [[composites]] and the policies"
                " of dead letters must be the same at all brokers of a cluster; to change them, stop all brokers"
            )
            raise InvalidSettings(text, key="virtual")


def _facts(connection: sa.Connection) -> ClusterFacts:
    row = connection.execute(sa.select(CLUSTER)).one()
    return ClusterFacts(row.shards, bytes(row.secret), tuple(row.stores.split()))


def _broker(row: Any) -> BrokerRow:
    return BrokerRow._make((*row[:7], frozenset(map(int, row.standing_by.split())), row.leaving))


_JULIAN = 2_440_587.5 * 86_400.0  # the epoch, in seconds of SQLite's calendar


def _server_engine(place: URL) -> sa.Engine:
    place = place.set(drivername="postgresql+psycopg").difference_update_query(["schema"])
    timeouts = {"connect_timeout": ANSWER_LIMIT, "tcp_user_timeout": ANSWER_LIMIT * 1000}
    return sa.create_engine(place, connect_args=timeouts, pool_size=1, max_overflow=1, pool_pre_ping=True)


def _local_engine(place: URL) -> sa.Engine:
    """A file whose writers wait for each other. SQLite knows no schemas."""
    engine = sa.create_engine(
        place.set(drivername="sqlite+pysqlite"), connect_args={"timeout": ANSWER_LIMIT},
        execution_options={"schema_translate_map": {SCHEMA: None}},
    )  # fmt: skip
    sa.event.listen(engine, "connect", _leave_transactions)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _leave_transactions(connection: Any, _: object) -> None:
    connection.isolation_level = None


def _no_postgresql() -> InvalidSettings:
    text = "a cluster needs a PostgreSQL database: set cluster.store to postgresql://user@host:5432/name"
    return InvalidSettings(text, key="cluster.store")
