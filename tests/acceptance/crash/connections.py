"""A broker on PostgreSQL whose connections are cut under load: ``python -m tests.acceptance.crash.connections``."""

import argparse
import asyncio
import contextlib
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg

from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.crash.load import Load
from tests.acceptance.crash.rounds import MEMORY_LIMIT, check_store
from tests.postgresql_server import PostgresqlServer, run_server

ANSWER_SECONDS = 60.0
"""A producer that has heard nothing for so long counts as forgotten: longer than the lease of a store lasts."""

CALM = 1.0
"""How often it is said how far everything is, and looked at whether the broker is there, in seconds."""

_BACKENDS = "SELECT pid, state FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@dataclass(frozen=True)
class Cuts:
    seconds: float  # for how long
    seed: int  # of everything random
    every: tuple[float, float] = (0.05, 0.3)  # how many seconds lie between two cuts, at the least and at the most
    kill_every: float = 0.0  # after how many seconds the server is killed and started again; 0 for never


class Cutter:
    """Cuts a connection of a server now and then, whoever has it, and kills the server itself."""

    def __init__(self, server: PostgresqlServer, cuts: Cuts) -> None:
        self.cut = self.killed = 0
        self._server = server
        self._cuts = cuts
        self._random = Random(cuts.seed)

    async def run(self) -> None:
        began = time.monotonic()
        while time.monotonic() - began < self._cuts.seconds:
            with contextlib.suppress(psycopg.OperationalError), self._server.connect() as connection:
                await self._cut_over(connection, began + self._cuts.seconds)

    async def _cut_over(self, connection: psycopg.Connection, end: float) -> None:
        """Cut others' connections over one of its own, until that is lost or the server was killed."""
        until = min(end, time.monotonic() + (self._cuts.kill_every or self._cuts.seconds))
        while time.monotonic() < until:
            await asyncio.sleep(self._random.uniform(*self._cuts.every))
            found = connection.execute(_BACKENDS).fetchall()
            # Half of the time one that does something, if there is one: what is idle is the less interesting.
            busy = [pid for pid, state in found if state != "idle"] if self._random.random() < 0.5 else []
            if pids := busy or [pid for pid, _ in found]:
                connection.execute("SELECT pg_terminate_backend(%s)", [self._random.choice(pids)])
                self.cut += 1
        if until < end:
            await asyncio.to_thread(self._server.kill)
            self.killed += 1


async def cut_connections(
    server: PostgresqlServer, cuts: Cuts, directory: Path, say: Callable[[str], None] = lambda text: None
) -> tuple[Load, Cutter]:
    url, cutter = server.url_for(directory), Cutter(server, cuts)
    broker = BrokerProcess(directory, url, {"MEMORY__LIMIT": MEMORY_LIMIT})
    broker.start()
    try:
        async with Load(Random(cuts.seed)) as load:
            load.place.port = await asyncio.to_thread(broker.port)
            cutting = asyncio.create_task(cutter.run())
            said = 0.0
            while not cutting.done():
                await asyncio.sleep(0.05)
                _check_alive(broker, load)
                if time.monotonic() - said > CALM:
                    said = time.monotonic()
                    say(f"{cutter.cut} cut, {cutter.killed} killed, {load.confirmed} confirmed, {load.errors}")
            cutting.result()
            await load.finish()
            _check_alive(broker, load)
        depth = await asyncio.to_thread(broker.metric_of_all, "quire_queue_messages")
        assert depth == 0, f"the broker counts {depth} messages, and all are consumed"
        broker.stop()
        left = check_store(url)
        assert left == 0, f"{left} messages are left that nobody was given"
        say(f"{load.confirmed} confirmed, {load.redelivered} redelivered, nothing lost")
        return load, cutter
    finally:
        broker.kill()


def _check_alive(broker: BrokerProcess, load: Load) -> None:
    """Fail if the broker has ended, forgets a client, or met what it did not foresee."""
    assert broker.process.poll() is None, f"the broker ended with {broker.process.returncode}:\n{broker.log}"
    wait = load.longest_wait
    assert wait < ANSWER_SECONDS, f"a producer has had no answer for {wait:.1f} s:\n{broker.log[-5000:]}"
    assert "Traceback" not in broker.log, broker.log[-10_000:]
    load.check()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.crash.connections", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds between kills of the server itself")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options = parser.parse_args()
    cuts = Cuts(options.minutes * 60, options.seed, kill_every=options.kill_every)
    with tempfile.TemporaryDirectory(prefix="quire-cut-") as directory, run_server() as server:
        print(f"{cuts} in {directory}", flush=True)
        asyncio.run(cut_connections(server, cuts, Path(directory), lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
