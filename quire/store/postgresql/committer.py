"""Commits: sends the statement of a commit, and finds out what became of it when the connection is lost."""

import psycopg
from psycopg import errors
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from quire.errors import StoreError, StoreUnreachable
from quire.store.postgresql.arrays import int8
from quire.store.postgresql.change import STEP_BYTES
from quire.store.postgresql.database import Database, is_lost, is_pooled
from quire.store.postgresql.ownership import Ownership
from quire.store.postgresql.statements import AHEAD, FENCED, Change, Statement, Statements

COMMIT_TRIES = 5
"""How many connections a commit is tried with, one after the other, as long as they are lost before the commit."""

MOST_PREPARED = 100
"""How many statements a connection keeps prepared; commits that differ from all of them are rare."""

MOST_BYTES = 2**30 - 2**20
"""How large a value may be: the server takes no longer message."""

# A process that is stopped in the middle holds its locks for so long only.
_BEGIN = b"BEGIN; SET LOCAL idle_in_transaction_session_timeout TO '5s'"

_BINARY = 1


class Committer:
    """Commits over the connection of the owner."""

    def __init__(self, database: Database, ownership: Ownership, *, durable: bool) -> None:
        self._database = database
        self._ownership = ownership
        self._durable = durable
        self._connection: psycopg.Connection | None = None  # which the rest is about
        self._prepared: set[bytes] = set()
        self._most_prepared = MOST_PREPARED
        self._statements = Statements(database.prefix)

    def commit(self, change: Change) -> None:
        """Commit, with further connections until the outcome is known.

        Raises:
            StoreError: nothing was stored; the kind says why.
        """
        ownership, lost = self._ownership, None
        for _ in range(COMMIT_TRIES):
            connection = ownership.writer
            number = ownership.commits + 1
            try:
                self._execute(connection, number, change)
                if ownership.is_replicated:
                    ownership.commits = number
                    return
            except psycopg.Error as error:
                if error.sqlstate == FENCED:
                    raise ownership.fenced() from error
                if not is_lost(error):
                    raise
                lost = error
            if ownership.decide(number):
                return
        raise StoreUnreachable(f"{COMMIT_TRIES} connections were lost: {lost}", url=self._database.place) from lost

    def _execute(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        """Send a commit and wait until it is on disk, in one trip; the interpreter is free meanwhile."""
        if connection is not self._connection:
            self._use(connection)
        self._ownership.is_replicated = True
        values: list[bytes] = [int8(number), int8(self._ownership.epoch)]
        for _, more in change:
            values += more
        if sum(map(len, values)) > STEP_BYTES:
            self._execute_in_steps(connection, number, change)
        else:
            self._send(connection, change, values)

    def _send(self, connection: psycopg.Connection, change: Change, values: list[bytes]) -> None:
        """Send the statement with the fence."""
        statement, pgconn = self._statements.of(change), connection.pgconn
        if statement.name in self._prepared or self._prepare(connection, statement):
            result = pgconn.exec_prepared(statement.name, values, statement.formats, _BINARY)
        else:
            result = pgconn.exec_params(statement.text, values, None, statement.formats, _BINARY)
        if result.status != ExecStatus.TUPLES_OK:
            raise _error_of(connection, result)

    def _execute_in_steps(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        """Send a large commit: in a transaction what may be large, a part at a time, then the rest with the fence."""
        for part, values in change:
            if sum(map(len, values)) > MOST_BYTES:
                text = f"PostgreSQL takes no value of more than {MOST_BYTES} bytes, and {part.name} has one"
                raise StoreError(text, url=self._database.place)
        rest: Change = [(part, values) for part, values in change if part.name not in AHEAD]
        pgconn = connection.pgconn
        _check(connection, pgconn.exec_(_BEGIN))
        try:
            for part, values in change:
                if part.name in AHEAD:
                    step, formats = self._statements.alone(part), [_BINARY] * len(values)
                    _check(connection, pgconn.exec_params(step, values, None, formats, _BINARY))
            fence = [int8(number), int8(self._ownership.epoch)]
            self._send(connection, rest, [*fence, *[value for _, values in rest for value in values]])
        except psycopg.Error:
            pgconn.exec_(b"ROLLBACK")  # an error of its own is that of a lost connection
            raise
        _check(connection, pgconn.exec_(b"COMMIT"))

    def _use(self, connection: psycopg.Connection) -> None:
        """A new connection has nothing prepared. Behind a pooler, settings hold for one transaction only."""
        is_shared = is_pooled(connection)
        ending = f", set_config('synchronous_commit', '{'on' if self._durable else 'off'}', true)" if is_shared else ""
        self._statements = Statements(self._database.prefix, ending)
        self._prepared = set()
        self._most_prepared = 0 if is_shared else MOST_PREPARED
        self._connection = connection

    def _prepare(self, connection: psycopg.Connection, statement: Statement) -> bool:
        """Prepare a statement, if there are not too many yet. Not every pooler keeps what is prepared."""
        if len(self._prepared) >= self._most_prepared:
            return False
        _check(connection, connection.pgconn.prepare(statement.name, statement.text))
        self._prepared.add(statement.name)
        return True


def _check(connection: psycopg.Connection, result: PGresult) -> None:
    if result.status != ExecStatus.COMMAND_OK:
        raise _error_of(connection, result)


def _error_of(connection: psycopg.Connection, result: PGresult) -> psycopg.Error:
    """What a statement failed with."""
    error = errors.error_from_result(result)
    return psycopg.OperationalError(str(error)) if connection.closed and not error.sqlstate else error
