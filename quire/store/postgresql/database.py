"""Where a PostgreSQL store is: its URL, its schema, how to connect, and what the server's errors mean."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from quire.errors import InvalidArgument, StoreCorrupt, StoreError, StoreFull, StoreUnreachable

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
        schema: its name; empty for the first one in the search path.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True)
        names = [name for name, _ in given]
        if twice := {name for name in names if names.count(name) > 1}:
            text = f"the URL of the PostgreSQL store has {sorted(twice)} twice: write several hosts as host1,host2"
            raise InvalidArgument(text)
        self.schema = dict(given).get("schema", "")
        if self.schema and not _NAME.fullmatch(self.schema):
            text = f"{self.schema!r} is no name for a schema: use letters, digits and _, at most 63"
            raise InvalidArgument(text, schema=self.schema)
        self.prefix = f'"{self.schema}".' if self.schema else ""
        query = urlencode([(name, value) for name, value in given if name != "schema"], quote_via=quote)
        try:
            wanted = conninfo_to_dict(f"postgresql:{parts._replace(scheme='', query=query).geturl()}")
            self._conninfo = make_conninfo("", **{**_DEFAULTS, **wanted})
            [int(port) for port in str(wanted.get("port", "")).split(",") if port]
        except (psycopg.ProgrammingError, ValueError):  # its text may show the password
            raise InvalidArgument(f"the URL of the PostgreSQL store cannot be read: {_ADVICE}") from None
        user, at, hosts = parts.netloc.rpartition("@")
        shown = urlencode([(name, value) for name, value in given if name != "password"], quote_via=quote)
        self.place = parts._replace(netloc=f"{user.partition(':')[0]}{at}{hosts}", query=shown).geturl()

    def connect(self, settings: str = "") -> psycopg.Connection:
        """A connection that commits by itself. Settings are made only where no pooler shares it with others."""
        connection = psycopg.connect(self._conninfo, autocommit=True)
        try:
            if is_pooled(connection):
                connection.prepare_threshold = None
            else:
                connection.execute(f"{_SETTINGS}; {settings}")
        except BaseException:
            connection.close()
            raise
        return connection

    def engine(self) -> Engine:
        """Connections for maintenance: tables without a schema are those of the store."""
        engine = create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(self._conninfo), poolclass=NullPool
        )
        if self.schema:
            # For one transaction only: what is set for longer would reach others that share a pooler's connections.
            path = f'SET LOCAL search_path TO "{self.schema}"'
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(path))
        return engine

    @contextmanager
    def telling(self, what: str = "failed") -> Iterator[None]:
        """Raise the server's errors as ours."""
        try:
            yield
        except DBAPIError as error:
            raise self.failure(error.orig if isinstance(error.orig, psycopg.Error) else error, what) from error
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
