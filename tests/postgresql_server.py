"""A private PostgreSQL server for tests, reached through a socket in its directory."""

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

# Begins the server, says so, and ends it at the end of its input. That comes when the tests end, however they end: a
# run that is killed leaves neither a process nor files behind. A line of input kills the server and starts it again.
KEEPER = """
directory=$1 programs=$2 fsync=$3
trap 'rm -rf "$directory"' EXIT
start() {
    "$programs/pg_ctl" -D "$directory/data" -w -l "$directory/log" \\
        -o "-c listen_addresses='' -c unix_socket_directories='$directory' -c fsync=$fsync" start >&2
}
"$programs/initdb" -D "$directory/data" -U quire -A trust -E UTF8 --locale=C --no-sync >&2 || exit 1
start || exit 1
echo ready
while read line; do
    kill -9 "$(head -n 1 "$directory/data/postmaster.pid")"
    until start; do sleep 0.1; done
    echo ready
done
"$programs/pg_ctl" -D "$directory/data" -w -m immediate stop >&2
"""


class NoServer(Exception):
    """No server can be run here; the text says why."""


class PostgresqlServer:
    def __init__(self, directory: Path, keeper: "subprocess.Popen[str]") -> None:
        self.directory = directory  # where its data and its socket are
        self._keeper = keeper  # the process that keeps it

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(f"host={self.directory} user=quire dbname=postgres", autocommit=True)

    def schema_of(self, place: Path) -> str:
        """The name of the schema that belongs to a path."""
        return "s" + hashlib.sha256(str(place).encode()).hexdigest()[:16]

    def url_for(self, place: Path) -> str:
        schema = self.schema_of(place)
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        query = f"host={quote(str(self.directory), safe='')}&options=-csearch_path%3D{schema}"
        return f"postgresql+psycopg://quire@/postgres?{query}"

    def size_of(self, place: Path) -> int:
        """How many bytes the tables of a path's schema and their indexes take on disk."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace = %s::regnamespace",
                [self.schema_of(place)],
            ).fetchone()
        assert row is not None
        return int(row[0])

    def kill(self) -> None:
        """End all its processes as ``kill -9`` does, and start it again."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.write("kill\n")
        self._keeper.stdin.flush()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            raise NoServer("the server did not start")


@contextmanager
def run_server(*, durable: bool = False) -> Iterator[PostgresqlServer]:
    programs = find_programs()
    account = find_account()
    # Not pytest's own directory: root's is closed to other accounts, and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="quire-pg-"))
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    with tempfile.TemporaryFile("w+") as log:
        keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", str(directory), str(programs), "on" if durable else "off"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd="/",
            start_new_session=True,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )
        with keeper:
            server = PostgresqlServer(directory, keeper)
            try:
                server.wait_until_ready()
            except NoServer as error:
                log.seek(0)
                raise NoServer(f"no private PostgreSQL server could be run: {log.read().strip()}") from error
            yield server


def find_programs() -> Path:
    found = shutil.which("pg_ctl")
    installed = [Path(found)] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not installed:
        raise NoServer("no PostgreSQL server is installed: pg_ctl is neither on the PATH nor in /usr/lib/postgresql")
    return installed[-1].resolve().parent


def find_account() -> pwd.struct_passwd | None:
    """Whom the server runs as; None for us. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServer("PostgreSQL does not run as root, and there is no account postgres or nobody")
