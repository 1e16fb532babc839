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


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A running server; the tests that need it are skipped, and say why, where there can be none."""
    programs = _find_programs()
    account = _find_account()
    # Not pytest's own directory: root's is closed to other accounts, and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="quire-pg-"))
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    data = directory / "data"
    try:
        make = ["-D", str(data), "-U", "quire", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        _run(account, str(programs / "initdb"), *make)
        options = f"-c listen_addresses='' -c unix_socket_directories={directory} -c fsync=off"
        control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
        _run(account, *control, "-l", str(directory / "log"), "-o", options, "start")
        try:
            yield PostgresqlServer(directory)
        finally:
            _run(account, *control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory)


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


def _run(account: pwd.struct_passwd | None, *command: str) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        timeout=60,
        check=False,
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        extra_groups=None if account is None else [],
    )
    if done.returncode:
        pytest.skip(f"no private PostgreSQL server could be run: {done.stdout.strip()}")
