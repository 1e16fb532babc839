"""The database's own record of its owners: a trigger writes down each change of their row, in the same transaction."""

from typing import LiteralString, NamedTuple

import psycopg

TRIGGER: LiteralString = """
CREATE SCHEMA takeover;
CREATE TABLE takeover.log (
    n bigserial PRIMARY KEY, at timestamptz NOT NULL, epoch bigint NOT NULL, commit bigint NOT NULL,
    name text NOT NULL, pid int NOT NULL, by int NOT NULL, kind text NOT NULL
);
CREATE FUNCTION takeover.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO takeover.log (at, epoch, commit, name, pid, by, kind) VALUES (
        clock_timestamp(), NEW.epoch, NEW.commit, NEW.name, NEW.pid, pg_backend_pid(),
        CASE WHEN NEW.epoch <> OLD.epoch THEN 'epoch' WHEN NEW.commit <> OLD.commit THEN 'commit' ELSE 'lease' END
    );
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER UPDATE ON quire.owner FOR EACH ROW EXECUTE FUNCTION takeover.note();
"""

_READ: LiteralString = "SELECT n, epoch, commit, name, pid, by, kind FROM takeover.log WHERE n > %s ORDER BY n"


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

    Attributes:
        violations: what cannot be if one alone is the owner.
        commits: how many commits there were.
        epochs: how many epochs.
        decided: how many of them the same owner began: to find out about a commit whose connection was lost.
        owners: how often the owner was another one than before.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.commits = self.epochs = self.decided = self.owners = 0
        self._last = 0
        self._epoch = self._commit = 0
        self._name = ""

    @staticmethod
    def record(connection: psycopg.Connection) -> None:
        """Have the database keep the record."""
        connection.execute(TRIGGER)

    def read(self, connection: psycopg.Connection) -> None:
        """Read what is new."""
        for row in connection.execute(_READ, [self._last]).fetchall():
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
