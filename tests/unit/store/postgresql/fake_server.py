"""A server in memory that has the owner's row, and fails as it is told: enough to decide about commits."""

import re
from collections.abc import Callable
from typing import Any

import psycopg

from quire.store.postgresql.database import Database

LOST = psycopg.OperationalError("the connection is lost")


class Row:
    """The owner's row."""

    def __init__(self) -> None:
        self.epoch = self.commits = 0
        self.name = self.token = ""
        self.is_free = True


class FakeServer:
    """The server.

    Attributes:
        row: the owner's row.
        log: what was asked, in short.
        before: what the next requests raise before they are done; None for nothing.
        after: what they raise after they are done, that is, committed.
        warns: of how many new epochs it says that their wait for replicas was ended.
        connections: how many were made.
    """

    def __init__(self) -> None:
        self.row = Row()
        self.log: list[str] = []
        self.before: list[Exception | None] = []
        self.after: list[Exception | None] = []
        self.warns = 0
        self.connections = 0

    def answer(self, connection: "FakeConnection", text: str) -> list[tuple[Any, ...] | None]:
        """Do what a request says, and give the first row of each result."""
        if self.before and (error := self.before.pop(0)):
            self.log.append("failed")
            raise error
        results = self._do(connection, text)
        if self.after and (error := self.after.pop(0)):
            self.log.append("done and lost")
            raise error
        return results

    def _do(self, connection: "FakeConnection", text: str) -> list[tuple[Any, ...] | None]:
        row = self.row
        if "pg_terminate_backend" in text:
            self.log.append("terminated")
            return [(True,)]
        if "SET epoch" in text:
            self.log.append("epoch")
            token = _literal(text, "token")
            is_allowed = row.token == token or (row.is_free and "'epoch'" in text)
            if not is_allowed:
                return [("limits",), (0,), None]
            row.epoch, row.token = row.epoch + 1, token
            if "name = " in text:
                row.name, row.is_free = _literal(text, "name"), False
            if self.warns:
                self.warns -= 1
                for handler in connection.handlers:
                    handler(ReplicationNotice())
            return [("limits",), (0,), (row.epoch, row.commits)]
        if text.startswith("SELECT epoch"):
            return [(row.epoch, row.commits)]
        raise AssertionError(text)

    def take_over(self) -> None:
        """Another broker takes the row."""
        self.row.epoch += 1
        self.row.token = "another"
        self.row.is_free = False


class ReplicationNotice:
    """What the server says when it ends the wait for synchronous replicas."""

    source_function = "SyncRepWaitForLSN"


class FakeConnection:
    """A connection to it."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.handlers: list[Callable[[Any], None]] = []
        self.closed = False
        server.connections += 1

    def add_notice_handler(self, handler: Callable[[Any], None]) -> None:
        """Have notices told."""
        self.handlers.append(handler)

    def execute(self, statement: psycopg.sql.Composed) -> "FakeCursor":
        """Ask the server."""
        return FakeCursor(self._server.answer(self, statement.as_string(None)))

    def close(self) -> None:
        """End it."""
        self.closed = True


class FakeCursor:
    """Results, one after the other."""

    description = True

    def __init__(self, results: list[tuple[Any, ...] | None]) -> None:
        self._results = results
        self._at = 0

    def fetchone(self) -> tuple[Any, ...] | None:
        """The row of this result."""
        return self._results[self._at]

    def nextset(self) -> bool:
        """Go on to the next one."""
        self._at += 1
        return self._at < len(self._results)


class FakeDatabase(Database):
    """A database at that server."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__("postgresql://quire@host/db")
        self._server = server

    def connect(self, settings: str = "") -> psycopg.Connection:
        """A connection."""
        return FakeConnection(self._server)  # type: ignore[return-value]


def _literal(text: str, name: str) -> str:
    found = re.search(rf"{name} = '([^']*)'", text)
    assert found, text
    return found[1]
