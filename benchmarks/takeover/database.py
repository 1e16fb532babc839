"""Two PostgreSQL servers: one takes writes, the other one replicates it synchronously and may be promoted."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg

from benchmarks.peers import free_port
from tests.postgresql_server import find_account, find_programs

LIMIT = 60.0
"""How long a server may take for anything, in seconds."""

SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{directory}'
fsync = off                        # nothing here cuts the power
wal_keep_size = '1GB'
wal_retrieve_retry_interval = '200ms'
include_if_exists = 'synchronous.conf'
"""

ACTIVITY: LiteralString = (
    "SELECT pid, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid), now() - query_start,"
    " left(query, 80) FROM pg_stat_activity WHERE backend_type IN ('client backend', 'walsender')"
)

# The server ends with its input: when the run ends, however it ends.
KEEPER = '"$@" & server=$!; read -r line; kill -INT $server; wait $server'


class Server:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory  # an empty one, for everything that it has
        self._data = directory / "data"
        self._programs = find_programs()
        account = find_account()
        self._as_whom: dict[str, Any] = (
            {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        )
        directory.mkdir(parents=True)
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
        self._keeper: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        self._run(
            "initdb", "-D", str(self._data), "-U", "quire", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(port=self.port, directory=self._directory))

    def copy(self, primary: "Server") -> None:
        """Become a replica of another server, whatever was here before."""
        shutil.rmtree(self._data, ignore_errors=True)
        source = f"host=127.0.0.1 port={primary.port} user=quire application_name=replica"
        self._run("pg_basebackup", "-D", str(self._data), "-d", source, "-R", "--checkpoint=fast", "--no-sync")
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(port=self.port, directory=self._directory))
        (self._data / "synchronous.conf").write_text("")

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["sh", "-c", KEEPER, "keeper", str(self._programs / "postgres"), "-D", str(self._data)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as_whom,
            )  # fmt: skip
        self._wait_for("SELECT true", "it takes no connections")

    def kill(self) -> None:
        """End all its processes as a power cut would."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        children = [int(pid) for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]
        for pid in (postmaster, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._keeper is not None
        self._keeper.communicate(b"\n", LIMIT)
        self._keeper = None

    def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.communicate(b"\n", LIMIT)
            self._keeper = None

    def promote(self) -> None:
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(true, 60)")

    def wait_for_replica(self) -> None:
        """Have commits wait for a replica from now on, once there is one that keeps up."""
        (self._data / "synchronous.conf").write_text("synchronous_standby_names = '*'\n")
        with self.connect() as connection:
            connection.execute("SELECT pg_reload_conf()")
        self._wait_for("SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'", "it has no replica")

    def connect(self) -> psycopg.Connection:
        where = f"host=127.0.0.1 port={self.port} user=quire dbname=postgres application_name=harness"
        return psycopg.connect(where, autocommit=True, connect_timeout=5)

    def _wait_for(self, question: LiteralString, otherwise: str) -> None:
        deadline = time.monotonic() + LIMIT
        while True:
            with suppress(psycopg.OperationalError), self.connect() as connection:
                if connection.execute(question).fetchall()[0][0]:
                    return
            assert time.monotonic() < deadline, f"{otherwise}:\n{(self._directory / 'log').read_text()[-3000:]}"
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **self._as_whom)
        assert done.returncode == 0, done.stderr


class Database:
    """Two servers, as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.primary, self.replica = self.servers = Server(directory / "a"), Server(directory / "b")

    def __enter__(self) -> Self:
        self.primary.create()
        self.primary.start()
        try:
            self._replicate()
        except BaseException:
            self.primary.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (self.replica, self.primary):
            server.stop()

    def activity(self) -> str:
        try:
            with self.primary.connect() as connection:
                return "\n".join([str(row) for row in connection.execute(ACTIVITY).fetchall()])
        except psycopg.Error as error:
            return f"unknown: {error}"

    def restart(self) -> None:
        self.primary.kill()
        self.primary.start()
        self.primary.wait_for_replica()

    def fail_over(self) -> None:
        """Kill the server that takes writes, and let the other one take them; it waits for no replica yet."""
        self.primary.kill()
        self.replica.promote()
        self.primary, self.replica = self.replica, self.primary

    def promote(self) -> None:
        """Let the other server take writes while the one before it still runs, and waits for its replica."""
        self.replica.promote()
        self.primary, self.replica = self.replica, self.primary

    def rebuild(self) -> None:
        """Make the server that was killed a replica of the other one."""
        self._replicate()

    def _replicate(self) -> None:
        self.replica.copy(self.primary)
        self.replica.start()
        self.primary.wait_for_replica()
