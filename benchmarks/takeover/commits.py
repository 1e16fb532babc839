"""The database's own record of a store's owners: a trigger writes down each change of their row in its transaction."""

from typing import LiteralString, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

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
    """One change of the owner's row."""

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

    Args:
        schema: that of the store.

    Attributes:
        violations: what cannot be if one alone is the owner.
        commits: how many commits there were.
        epochs: how many epochs.
        decided: how many of them the same owner began: to find out about a commit whose connection was lost.
        owners: how often the owner was another one than before.
    """

    def __init__(self, schema: str = "quire") -> None:
        self.violations: list[str] = []
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
        """Read what is new."""
        for row in connection.execute(SQL(_READ).format(**self._names), [self._last]).fetchall():
            self.take(Note(*row))

    def take(self, note: Note) -> None:
        """Look at the next change."""
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
