"""Where a PostgreSQL store is: its URL, its schema, how to connect, what the server's errors mean, and its tables.

Other processes may create the tables at the same time: each finds all or none.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from quire.errors import InvalidArgument, StoreCorrupt, StoreError, StoreFull, StoreUnreachable
from quire.store.base import SQL_FORMAT

_DEFAULTS = {
    "connect_timeout": "2", "tcp_user_timeout": "5000", "keepalives_idle": "3", "keepalives_interval": "1",
    "keepalives_count": "3", "target_session_attrs": "read-write", "application_name": "quire",
}  # fmt: skip
"""What a connection gets unless the URL says something else: another host is tried soon, a dead one is noticed."""

_STATEMENT_POOLING = "not allowed in statement pooling mode"
"""What PgBouncer says when it may not keep the connection of a transaction for longer than a statement."""

_ADVICE = "write postgresql://user@host:5432/name"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_SETTINGS = (
    "SET statement_timeout TO 0; SET lock_timeout TO 0; SET jit TO off; SET plan_cache_mode TO force_generic_plan;"
    " SET enable_hashjoin TO off; SET enable_mergejoin TO off; SET enable_seqscan TO off"
)
"""For connections of our own. Tables change too fast for their statistics, and every statement is to use the index."""


class Database:
    """The place of a store.

    Attributes:
        place: the URL without its password.
        prefix: what stands before the name of a table: the schema, if the URL names one.
        search_path: has a transaction find tables without a schema there; empty without a name.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True)
        names = [name for name, _ in given]
        if twice := {name for name in names if names.count(name) > 1}:
            text = f"the URL of the PostgreSQL store has {sorted(twice)} twice: write several hosts as host1,host2"
            raise InvalidArgument(text)
        self.schema = dict(given).get("schema", "")  # its name; empty for the first one in the search path
        if self.schema and not _NAME.fullmatch(self.schema):
            text = f"{self.schema!r} is no name for a schema: use letters, digits and _, at most 63"
            raise InvalidArgument(text, schema=self.schema)
        self.prefix = f'"{self.schema}".' if self.schema else ""
        # For one transaction only: what is set for longer would reach others that share a pooler's connections.
        self.search_path = f'SET LOCAL search_path TO "{self.schema}"' if self.schema else ""
        query = urlencode([(name, value) for name, value in given if name != "schema"], quote_via=quote)
        try:
            wanted = conninfo_to_dict(f"postgresql:{parts._replace(scheme='', query=query).geturl()}")
            self.conninfo = make_conninfo("", **{**_DEFAULTS, **wanted})  # what libpq connects with
            [int(port) for port in str(wanted.get("port", "")).split(",") if port]
        except (psycopg.ProgrammingError, ValueError):  # its text may show the password
            raise InvalidArgument(f"the URL of the PostgreSQL store cannot be read: {_ADVICE}") from None
        user, at, hosts = parts.netloc.rpartition("@")
        shown = urlencode([(name, value) for name, value in given if name != "password"], quote_via=quote)
        self.place = parts._replace(netloc=f"{user.partition(':')[0]}{at}{hosts}", query=shown).geturl()

    def connect(self, settings: str = "") -> psycopg.Connection:
        """A connection that commits by itself. Settings are made only where no pooler shares it with others."""
        connection = psycopg.connect(self.conninfo, autocommit=True)
        try:
            if is_pooled(connection):
                connection.prepare_threshold = None
            else:
                connection.execute(f"{_SETTINGS}; {settings}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def transaction(self, what: str = "failed") -> Iterator[psycopg.Connection]:
        """A transaction over a connection of its own; tables without a schema are those of the store."""
        with self.telling(what), psycopg.connect(self.conninfo) as connection:
            if self.search_path:
                connection.execute(self.search_path.encode())
            yield connection

    @contextmanager
    def telling(self, what: str = "failed") -> Iterator[None]:
        """Raise the server's errors as ours."""
        try:
            yield
        except psycopg.Error as error:
            raise self.failure(error, what) from error

    def failure(self, error: Exception, what: str = "failed") -> StoreError:
        """Our error for one of the driver's; without the statement and its values: messages do not belong into logs."""
        text = f"the store {self.place} {what}: {' '.join(str(error).split())}"
        if _STATEMENT_POOLING in text:
            return StoreError(f"{text}: use session or transaction pooling", url=self.place)
        return kind_of(error)(text, url=self.place)


def is_pooled(connection: psycopg.Connection) -> bool:
    """Whether a pooler is in between: it makes up the process number that a client is told."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


def is_lost(error: Exception) -> bool:
    """Whether an error says that the connection, or its server's right to write, is lost, or that there can be none."""
    state = getattr(error, "sqlstate", None) or ""
    if not state:
        return isinstance(error, psycopg.OperationalError)
    return state in ("25006", "25P03") or state.startswith(("08", "57P"))


def kind_of(error: Exception) -> type[StoreError]:
    """Our error for one of the server's (PostgreSQL 15, appendix A, "PostgreSQL Error Codes")."""
    state = getattr(error, "sqlstate", None) or ""
    if state == "53100":
        return StoreFull
    if state in ("XX001", "XX002"):
        return StoreCorrupt
    return StoreUnreachable if is_lost(error) else StoreError


# In ``meta`` the row ``format`` has the format version. ``lanes`` has a row for each lane that was ever written,
# ``expirations`` one for each record that expires. Where a table is half full, there is room for new versions of a row
# beside the old one: then no index is written.
_TABLES = {
    "meta": "key varchar(100) PRIMARY KEY, value varchar(100) NOT NULL",
    "destinations": "id bigint PRIMARY KEY, kind varchar(20) NOT NULL, name text NOT NULL, settings json NOT NULL,"
    " lanes json NOT NULL",
    "lanes": "lane bigint PRIMARY KEY, head bigint NOT NULL, tail bigint NOT NULL, count bigint NOT NULL,"
    " bytes bigint NOT NULL, next_sequence bigint NOT NULL, dispatch_mark bigint NOT NULL",
    "pages": "lane bigint, first bigint, last bigint NOT NULL, live integer NOT NULL, entries bytea NOT NULL,"
    " body bytea NOT NULL, PRIMARY KEY (lane, first)",
    "expirations": "expiration bigint, lane bigint, sequence bigint, PRIMARY KEY (expiration, lane, sequence)",
    "deliveries": "lane bigint, sequence bigint, deliveries bigint NOT NULL, failures bigint NOT NULL,"
    " not_before bigint NOT NULL, cause text NOT NULL, PRIMARY KEY (lane, sequence)",
    "producers": 'producer text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL',
    "marks": 'key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL',
}
TABLES = tuple(_TABLES)
_HALF_FULL = "WITH (fillfactor = 50)"
_OWNER = (
    "id bigint PRIMARY KEY, epoch bigint NOT NULL, commit bigint NOT NULL, name text NOT NULL, process text NOT NULL,"
    " token text NOT NULL, pid integer NOT NULL, expires timestamptz NOT NULL"
)
"""One row with the id 1: who may write.

Each taking of the lock, and each new connection of the owner, makes a new ``epoch``. Each commit needs the epoch of its
owner and counts ``commit`` up by one. ``token`` is the owner's own: by it an owner recognizes an epoch that it made
over a connection that was lost then. ``process`` says which process of which machine it is. ``name`` is empty and
``expires`` is 1970 while the lock is free; ``pid`` is the server's process of the owner's connection.
"""

_CREATION_LOCK = 0x51756972
_HAS_LZ4 = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
_ENTRIES_IN_PLACE = "ALTER TABLE pages ALTER COLUMN entries SET STORAGE MAIN"
_COMPRESSED = "ALTER TABLE pages ALTER entries SET COMPRESSION lz4, ALTER body SET COMPRESSION lz4"
# The compression that every server has costs three times as much as it saves.
_PLAIN = "ALTER TABLE pages ALTER COLUMN body SET STORAGE EXTERNAL"
_FREE = "INSERT INTO owner VALUES (1, 0, 0, '', '', '', 0, 'epoch')"


def found_format(database: Database) -> int | None:
    """The format of the store; None if there is no store."""
    with database.transaction("cannot be opened") as connection:
        if not _has(connection, "meta"):
            return None
        row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        return int(row[0]) if row else 0


def create_store(database: Database) -> None:
    """Create the tables at the current format, if there are none."""
    with _creating(database) as connection:
        if _has(connection, "meta"):
            return
        for name, columns in _TABLES.items():
            _create(connection, name, columns, _HALF_FULL if name == "lanes" else "")
        compresses = connection.execute(_HAS_LZ4).fetchone() == (True,)
        connection.execute(_ENTRIES_IN_PLACE)
        connection.execute(_COMPRESSED if compresses else _PLAIN)
        connection.execute("INSERT INTO meta VALUES ('format', %s)", [str(SQL_FORMAT)])


def create_owner(database: Database) -> None:
    """Create the table of the owner with its row, free, if it is not there."""
    with database.transaction("cannot be opened") as connection:
        if _has(connection, "owner"):
            return
    with _creating(database) as connection:
        if not _has(connection, "owner"):
            _create(connection, "owner", _OWNER, _HALF_FULL)
            connection.execute(_FREE)


def _has(connection: psycopg.Connection, table: str) -> bool:
    return connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone() == (True,)


def _has_schema(connection: psycopg.Connection, name: str) -> bool:
    found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name])
    return found.fetchone() is not None


def _create(connection: psycopg.Connection, name: str, columns: str, more: str) -> None:
    connection.execute(f"CREATE TABLE {name} ({columns}) {more}".encode())


@contextmanager
def _creating(database: Database) -> Iterator[psycopg.Connection]:
    """A transaction that creates tables, one process at a time, in the schema of the URL."""
    with database.transaction("cannot be opened") as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATION_LOCK])
        # The right to create schemas is asked for only where there is none of that name.
        if database.schema and not _has_schema(connection, database.schema):
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(database.schema)))
        yield connection
