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

from sqlalchemy import Connection, Engine, Table, create_engine, delete, event, extract, func, or_, select, true, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from quire.cluster import cluster_tables as tables
from quire.cluster.cluster_tables import SCHEMA, broker_row, shard_row
from quire.cluster.view import BrokerRow, ClusterFacts, PinRow, ShardRow, View
from quire.errors import InvalidSettings, QuireError, StoreUnreachable, UnknownBroker

LEASE = 3.0
"""How long a broker counts as living after it was heard of, in seconds."""

ANSWER_LIMIT = 2
"""How long the server may take to connect or to answer, in seconds."""

_FORMING = 0x51756963


class Directory:
    """The tables of one cluster.

    Args:
        url: the database of the cluster: ``postgresql://...``, or ``sqlite:///...`` of a cluster of one broker.

    Raises:
        InvalidSettings: the URL is of neither.
    """

    def __init__(self, url: str) -> None:
        try:
            place = make_url(url)
        except ArgumentError as error:  # its text may show the password
            raise _no_postgresql() from error
        self._is_local = place.get_backend_name() == "sqlite"
        self._insert: Callable[[Table], Any]
        if self._is_local:
            self._engine, self._insert = _local_engine(place), sqlite.insert
            self._now = func.julianday("now") * 86_400.0 - _JULIAN
        elif place.get_backend_name() in ("postgresql", "postgres"):
            self._engine, self._insert = _server_engine(place), postgresql.insert
            self._now = extract("epoch", func.clock_timestamp())
        else:
            raise _no_postgresql()
        self.shown_url = self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self._engine.dispose()

    def form(self, shards: int, stores: tuple[str, ...]) -> ClusterFacts:
        """Form the cluster if it is not there: what it then has, for good.

        Args:
            shards: how many shards a new cluster gets.
            stores: the databases of the shards of a new cluster.
        """
        with self._transaction() as connection:
            if not self._is_local:
                connection.execute(select(func.pg_advisory_xact_lock(_FORMING)))
                connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
            tables.metadata.create_all(connection)
            facts = {"shards": shards, "secret": secrets.token_bytes(32), "stores": " ".join(stores)}
            new = self._insert(tables.cluster).values(id=1, formed=self._now, **facts)
            connection.execute(new.on_conflict_do_nothing())
            row = connection.execute(select(tables.cluster)).one()
        return ClusterFacts(row.shards, bytes(row.secret), tuple(row.stores.split()))

    def facts(self) -> ClusterFacts:
        """What the cluster has.

        Raises:
            StoreUnreachable: there is no cluster, or the server does not answer.
        """
        with self._transaction() as connection:
            row = connection.execute(select(tables.cluster)).one()
        return ClusterFacts(row.shards, bytes(row.secret), tuple(row.stores.split()))

    def renew(self, row: BrokerRow) -> bool:
        """Say that a broker lives, for the length of a lease; false if another process has its name.

        Raises:
            InvalidSettings: it does not count as living, and the brokers that do place destinations otherwise.
        """
        table = tables.brokers
        values = {
            "run": row.run, "stomp": row.stomp, "openwire": row.openwire, "http": row.http, "version": row.version,
            "placement": row.placement, "standing_by": " ".join(map(str, sorted(row.standing_by))),
            "expires": self._now + LEASE,
        }  # fmt: skip
        again = self._insert(table).values(name=row.name, leaving=row.leaving, **values)
        # A broker that starts anew does not leave any more; an operator may have told a running one to.
        leaving = (table.c.leaving & (table.c.run == row.run)) | again.excluded.leaving
        renewal = again.on_conflict_do_update(
            index_elements=["name"], set_={**values, "leaving": leaving},
            where=true() if self._is_local else or_(table.c.run == row.run, table.c.expires < self._now),
        )  # fmt: skip
        with self._transaction() as connection:
            if not self._is_local:
                self._check_placement(connection, row)
            return connection.execute(renewal.returning(table.c.name)).first() is not None

    def remove(self, row: BrokerRow) -> None:
        """A broker has stopped."""
        with self._transaction() as connection:
            ours = (tables.brokers.c.name == row.name) & (tables.brokers.c.run == row.run)
            connection.execute(delete(tables.brokers).where(ours))

    def read(self) -> View:
        """All brokers that live, all shards, all pins."""
        with self._transaction() as connection:
            living = connection.execute(select(tables.brokers).where(tables.brokers.c.expires >= self._now)).all()
            owned = connection.execute(select(tables.shards)).all()
            pinned = connection.execute(select(tables.pins)).all()
        return View(
            {row.name: broker_row(row) for row in living},
            {row.shard: shard_row(row) for row in owned},
            {row.key: PinRow(row.key, row.destination, row.shard, row.version) for row in pinned},
        )

    def announce(self, row: ShardRow) -> bool:
        """A process owns a shard; false if one with a later epoch does."""
        table = tables.shards
        values = {
            "broker": row.broker, "epoch": row.epoch, "address": row.address, "http": row.http, "pid": row.pid,
            "since": self._now,
        }  # fmt: skip
        new = self._insert(table).values(shard=row.shard, preferred="", **values)
        taken = new.on_conflict_do_update(index_elements=["shard"], set_=values, where=table.c.epoch <= row.epoch)
        with self._transaction() as connection:
            return connection.execute(taken.returning(table.c.shard)).first() is not None

    def withdraw(self, shard: int, epoch: int) -> None:
        """The process that owned a shard with an epoch is gone."""
        table = tables.shards
        with self._transaction() as connection:
            ours = (table.c.shard == shard) & (table.c.epoch == epoch)
            connection.execute(update(table).where(ours).values(address="", http="", pid=0))

    def pin(self, row: PinRow) -> None:
        """A shard has given a placement key to another one; nothing if a later version is known."""
        table = tables.pins
        new = self._insert(table).values(row._asdict())
        later = new.on_conflict_do_update(
            index_elements=["key"], set_=row._asdict(), where=table.c.version < row.version
        )  # fmt: skip
        with self._transaction() as connection:
            connection.execute(later)

    def prefer(self, shard: int, broker: str) -> None:
        """An operator wants a shard at a broker; an empty name: at any."""
        table = tables.shards
        values = {"broker": "", "epoch": 0, "address": "", "http": "", "pid": 0, "since": self._now}
        new = self._insert(table).values(shard=shard, preferred=broker, **values)
        with self._transaction() as connection:
            connection.execute(new.on_conflict_do_update(index_elements=["shard"], set_={"preferred": broker}))

    def ask_to_leave(self, broker: str) -> None:
        """Have a broker give up its shards and stop.

        Raises:
            UnknownBroker: no broker of this name lives.
        """
        table = tables.brokers
        living = (table.c.name == broker) & (table.c.expires >= self._now)
        with self._transaction() as connection:
            if not connection.execute(update(table).where(living).values(leaving=True)).rowcount:
                raise UnknownBroker(f"no broker {broker!r} lives in the cluster", broker=broker)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
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

    def _check_placement(self, connection: Connection, row: BrokerRow) -> None:
        """Refuse a broker that is about to join those who place destinations otherwise: each would look elsewhere."""
        table = tables.brokers.c
        lives = (table.name == row.name) & (table.run == row.run) & (table.expires >= self._now)
        if connection.execute(select(table.name).where(lives)).first() is not None:
            return
        connection.execute(select(func.pg_advisory_xact_lock(_FORMING)))  # no two join at once
        others = (table.name != row.name) & (table.expires >= self._now) & (table.placement != row.placement)
        if (other := connection.execute(select(table.name).where(others)).first()) is not None:
            text = (
                f"broker {other.name!r} has other settings of destinations: [virtual], [[composites]] and the policies"
                " of dead letters must be the same at all brokers of a cluster; to change them, stop all brokers"
            )
            raise InvalidSettings(text, key="virtual")


_JULIAN = 2_440_587.5 * 86_400.0  # the epoch, in seconds of SQLite's calendar


def _server_engine(place: URL) -> Engine:
    place = place.set(drivername="postgresql+psycopg").difference_update_query(["schema"])
    timeouts = {"connect_timeout": ANSWER_LIMIT, "tcp_user_timeout": ANSWER_LIMIT * 1000}
    return create_engine(place, connect_args=timeouts, pool_size=1, max_overflow=1, pool_pre_ping=True)


def _local_engine(place: URL) -> Engine:
    """A file whose writers wait for each other. SQLite knows no schemas."""
    engine = create_engine(
        place.set(drivername="sqlite+pysqlite"), connect_args={"timeout": ANSWER_LIMIT},
        execution_options={"schema_translate_map": {SCHEMA: None}},
    )  # fmt: skip
    event.listen(engine, "connect", _leave_transactions)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _leave_transactions(connection: Any, _: object) -> None:
    """Have the driver begin no transactions by itself."""
    connection.isolation_level = None


def _no_postgresql() -> InvalidSettings:
    text = "a cluster needs a PostgreSQL database: set cluster.store to postgresql://user@host:5432/name"
    return InvalidSettings(text, key="cluster.store")
