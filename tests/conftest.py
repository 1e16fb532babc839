"""Fixtures that tests of several directories share: a private PostgreSQL server."""

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psycopg
import pytest

pytest.register_assert_rewrite("quire.testing")


class PostgresqlServer(NamedTuple):
    """A server of the tests' own, reached through a socket in its directory.

    Attributes:
        directory: where its data and its socket are.
    """

    directory: Path

    def connect(self) -> psycopg.Connection:
        """A connection that commits by itself."""
        return psycopg.connect(f"host={self.directory} user=quire dbname=postgres", autocommit=True)

    def schema_of(self, place: Path) -> str:
        """The name of the schema that belongs to a path."""
        return "s" + hashlib.sha256(str(place).encode()).hexdigest()[:16]

    def url_for(self, place: Path) -> str:
        """The URL of a schema that belongs to a path; it is made at first."""
        schema = self.schema_of(place)
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        query = f"host={quote(str(self.directory), safe='')}&options=-csearch_path%3D{schema}"
        return f"postgresql+psycopg://quire@/postgres?{query}"


# Begins the server, says so, waits for the end of its input, ends the server. The tests' end closes that input, however
# they end: a run that is killed leaves neither a process nor files behind.
KEEPER = """
directory=$1 programs=$2
trap 'rm -rf "$directory"' EXIT
"$programs/initdb" -D "$directory/data" -U quire -A trust -E UTF8 --locale=C --no-sync >&2 || exit 1
"$programs/pg_ctl" -D "$directory/data" -w -l "$directory/log" \\
    -o "-c listen_addresses='' -c unix_socket_directories='$directory' -c fsync=off" start >&2 || exit 1
echo ready
read end
"$programs/pg_ctl" -D "$directory/data" -w -m immediate stop >&2
"""


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A running server; the tests that need it are skipped, and say why, where there can be none."""
    programs = _find_programs()
    account = _find_account()
    # Not pytest's own directory: root's is closed to other accounts, and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="quire-pg-"))
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    with tempfile.TemporaryFile("w+") as log:
        keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", str(directory), str(programs)],
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
            assert keeper.stdout is not None
            if keeper.stdout.readline() != "ready\n":
                log.seek(0)
                pytest.skip(f"no private PostgreSQL server could be run: {log.read().strip()}")
            yield PostgresqlServer(directory)


def _find_programs() -> Path:
    found = shutil.which("pg_ctl")
    installed = [Path(found)] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not installed:
        pytest.skip("no PostgreSQL server is installed: pg_ctl is neither on the PATH nor in /usr/lib/postgresql")
    return installed[-1].resolve().parent


def _find_account() -> pwd.struct_passwd | None:
    """Whom the server runs as; None for us. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("PostgreSQL does not run as root, and there is no account postgres or nobody")
