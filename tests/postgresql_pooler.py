"""A private PgBouncer in front of the private PostgreSQL server."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.postgresql_server import NoServer, PostgresqlServer, find_account

START_SECONDS = 60.0
PAUSE = 0.02
PORT = 6432  # of its socket, which is in a directory of its own

SETTINGS = """
[databases]
postgres = host={server} user=quire
[pgbouncer]
pool_mode = {mode}
unix_socket_dir = {directory}
listen_port = {port}
auth_type = any
default_pool_size = 10
"""

# It ends with its input: when the tests end, however they end.
KEEPER = '"$@" & pooler=$!; read -r line; kill -INT $pooler; wait $pooler'


class PostgresqlPooler:
    def __init__(self, directory: Path) -> None:
        self.directory = directory  # where its socket is

    def url_for(self, schema: str) -> str:
        host = quote(str(self.directory), safe="")
        return f"postgresql://quire@/postgres?host={host}&port={PORT}&schema={schema}"

    def wait_until_ready(self) -> None:
        for _ in range(round(START_SECONDS / PAUSE)):
            with suppress(psycopg.OperationalError):
                psycopg.connect(f"host={self.directory} port={PORT} user=quire dbname=postgres").close()
                return
            time.sleep(PAUSE)
        raise AssertionError(f"the pooler takes no connections:\n{(self.directory / 'log').read_text()}")


@contextmanager
def run_pooler(server: PostgresqlServer, mode: str) -> Iterator[PostgresqlPooler]:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise NoServer("no pooler is installed: pgbouncer is neither on the PATH nor in /usr/sbin")
    account = find_account()
    directory = Path(tempfile.mkdtemp(prefix="quire-pool-"))
    settings = SETTINGS.format(server=server.directory, mode=mode, directory=directory, port=PORT)
    (directory / "pgbouncer.ini").write_text(settings)
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    with (directory / "log").open("wb") as log:
        keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", program, str(directory / "pgbouncer.ini")],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True,
            user=None if account is None else account.pw_uid, group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )  # fmt: skip
    try:
        pooler = PostgresqlPooler(directory)
        pooler.wait_until_ready()
        yield pooler
    finally:
        keeper.communicate(b"\n", START_SECONDS)
        shutil.rmtree(directory)
