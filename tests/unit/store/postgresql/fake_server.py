"""A server in memory that has the owner's row, and fails as it is told: enough to decide about commits."""

import re
from collections.abc import Callable
from typing import Any

import psycopg

from quire.store.postgresql.database import Database

LOST = psycopg.OperationalError("the connection is lost")


class Row:
    def __init__(self) -> None:
        self.epoch = self.commits = 0
        self.name = self.token = ""
        self.is_free = True


class FakeServer:
    def __init__(self) -> None:
        self.row = Row()  # the owner's row
        self.log: list[str] = []  # what was asked, in short
        self.before: list[Exception | None] = []  # what the next requests raise before they are done; None for nothing
        self.after: list[Exception | None] = []  # what they raise after they are done, that is, committed
        self.warns = 0  # of how many new epochs it says that their wait for replicas was ended
        self.connections = 0  # how many were made

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
        self.row.epoch += 1
        self.row.token = "another"
        self.row.is_free = False


class ReplicationNotice:
    """What the server says when it ends the wait for synchronous replicas."""

    source_function = "SyncRepWaitForLSN"


class FakeConnection:
    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.handlers: list[Callable[[Any], None]] = []
        self.closed = False
        server.connections += 1

    def add_notice_handler(self, handler: Callable[[Any], None]) -> None:
        self.handlers.append(handler)

    def execute(self, statement: psycopg.sql.Composed) -> "FakeCursor":
        return FakeCursor(self._server.answer(self, statement.as_string(None)))

    def close(self) -> None:
        self.closed = True


class FakeCursor:
    description = True

    def __init__(self, results: list[tuple[Any, ...] | None]) -> None:
        self._results = results
        self._at = 0

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._results[self._at]

    def nextset(self) -> bool:
        self._at += 1
        return self._at < len(self._results)


class FakeDatabase(Database):
    def __init__(self, server: FakeServer) -> None:
        super().__init__("postgresql://quire@host/db")
        self._server = server

    def connect(self, settings: str = "") -> psycopg.Connection:
        return FakeConnection(self._server)  # type: ignore[return-value]


def _literal(text: str, name: str) -> str:
    found = re.search(rf"{name} = '([^']*)'", text)
    assert found, text
    return found[1]
