"""Kills a broker under Java clients with the failover transport: ``python -m tests.interop.kills --rounds 50``."""

import argparse
import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO

from tests.acceptance.crash.broker_process import START_SECONDS
from tests.acceptance.crash.rounds import check_store
from tests.interop.brokers import JAVA, ActiveMq, Broker, Quire, QuireCluster
from tests.interop.java_build import class_path
from tests.postgresql_server import run_server

_FAILOVER = "?initialReconnectDelay=20&useExponentialBackOff=false"


@dataclass(frozen=True)
class Outcome:
    """What the clients of one mode know at the end; more than their counts is in ``LoadLedger.java``."""

    confirmed: int  # messages that the broker confirmed
    received: int  # different messages that arrived
    lost: int  # confirmed messages that did not arrive, or only in transactions that were rolled back
    doubled: int  # messages that came again and must not
    disorder: int  # messages that came to a consumer after a later one of their producer
    torn: int  # transactions of which only a part arrived
    redelivered: int  # deliveries with the flag
    doubtful_sends: int  # messages whose send or commit failed
    doubtful_receives: int  # messages of which it is not known whether the commit that acknowledged them was done
    errors: list[str]  # why sends and commits failed, for people
    examples: list[str]  # of what is wrong, for people

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.disorder or self.torn)


def run_rounds(
    broker: Broker, line: int, rounds: int, random: Random, say: Callable[[str], None] = lambda text: None
) -> dict[str, Outcome]:
    try:
        broker.start()
        with _load(line, broker.address) as (commands, answers):
            assert answers.readline() == "running\n"
            for number in range(rounds):
                time.sleep(random.uniform(0.3, 2.0))
                if isinstance(broker, QuireCluster):
                    broker.kill_one(random.choice(broker.names))
                else:
                    broker.kill()
                if isinstance(broker, Quire):
                    check_store(broker.process.store)
                broker.start()
                say(f"round {number + 1}: killed and started again")
            time.sleep(1)
            commands.write("stop\n")
            commands.flush()
            answer = answers.readline()
        assert answer, "the Java program gave up; its messages above say why"
        return {mode: Outcome(**counts) for mode, counts in json.loads(answer).items()}
    finally:
        broker.kill()


@contextmanager
def _load(line: int, address: str) -> Iterator[tuple[IO[str], IO[str]]]:
    url = f"failover:({','.join([f'tcp://{each}' for each in address.split(',')])}){_FAILOVER}"
    command = [*JAVA, "-cp", class_path(f"client{line}", "java"), "Load", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin
            assert process.stdout
            yield process.stdin, process.stdout
        finally:
            process.kill()
            process.wait(START_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.kills")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--broker", choices=["quire", "cluster", "activemq"], default="quire")
    parser.add_argument("--client", type=int, choices=[5, 6], default=6)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options = parser.parse_args()
    with ExitStack() as closing:
        directory = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="quire-kills-")))
        print(f"{options} in {directory}", flush=True)
        broker: Broker
        if options.broker == "cluster":
            broker = QuireCluster(closing.enter_context(run_server()), directory)
        else:
            broker = Quire(directory) if options.broker == "quire" else ActiveMq(directory, options.client)
        random = Random(options.seed)
        outcomes = run_rounds(broker, options.client, options.rounds, random, lambda text: print(text, flush=True))
        for mode, outcome in outcomes.items():
            print(f"{mode}: {outcome}")
    raise SystemExit(0 if all([outcome.good for outcome in outcomes.values()]) else 1)


if __name__ == "__main__":
    main()
