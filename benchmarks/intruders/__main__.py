"""A client with a login and TLS, alone and while others without a login attack the broker: who must not notice whom."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click

from benchmarks.intruders.intrusions import Marks, intrude
from benchmarks.rig import MemoryWatch, OwnBroker, temporary_directory
from benchmarks.scenarios.attacks import SILENT_CONNECTIONS, Tally
from benchmarks.scenarios.findings import Finding, at_least, at_most, report
from quire.cli.certificates import make_authority, make_client, make_server, write_pair
from quire.cli.output import Output, output_option
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import measure
from quire.client.tls_trust import CA
from quire.clock import SystemClock
from quire.security.passwords import hashed
from quire.settings import split_address

MIN_SHARE = 0.8
"""How fast the client must be under attack, as a share of its rate alone."""

MAX_RSS_ANON = 150_000_000
"""How much memory the broker's process may take, in bytes."""

PASSWORD = "benchmark"
_PAUSE = 0.5
_HALF_OPEN = 300
"""With so many half-open handshakes the measurement begins; their number goes on to grow."""


class Fortress:
    """A broker with a user and a certificate, in a directory."""

    def __init__(self, directory: Path) -> None:
        now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        authority, foreign = make_authority(now), make_authority(now)
        self.ca, self.foreign = directory / "ca.pem", directory / "foreign.pem"
        write_pair(authority, self.ca, directory / "ca.key")
        write_pair(make_server(authority, ["127.0.0.1"], now, 1), directory / "server.pem", directory / "server.key")
        pair = directory / "foreign.key"
        write_pair(make_client(foreign, "victim", now, 1), self.foreign, pair)
        self.foreign.write_bytes(self.foreign.read_bytes() + pair.read_bytes())
        file = directory / "quire.toml"
        file.write_text(
            f'[tls]\ncertificate = "{directory}/server.pem"\nkey = "{directory}/server.key"\n'
            f'client_ca = "{self.ca}"\nclient_certificates = "optional"\n'
            f'[[users]]\nname = "victim"\npassword_hash = "{hashed(PASSWORD)}"\n'
            f'[[rules]]\nsubject = "user:victim"\nallow = ["read", "write", "create"]\ndestination = "perf.>"\n'
        )
        self.broker = OwnBroker(directory, {"config": str(file)})

    @property
    def target(self) -> Target:
        """How the client connects that has a login."""
        own = self.broker.target
        return Target(own.host, own.port, "victim", PASSWORD, tls=True)

    @property
    def marks(self) -> Marks:
        """What is attacked."""
        return Marks(self.broker.target, Target(*split_address(self.broker.api.url.rpartition("/")[2])), self.foreign)


@contextmanager
def attacked(marks: Marks, tally: Tally) -> Iterator[None]:
    """Meanwhile all attacks go on."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    process = context.Process(target=intrude, args=(marks, tally, stop))
    process.start()
    try:
        deadline = SystemClock().monotonic() + 30
        while tally.silent < min(_HALF_OPEN, SILENT_CONNECTIONS) and SystemClock().monotonic() < deadline:
            time.sleep(_PAUSE)
        yield
    finally:
        stop.set()
        process.join(10)
        process.kill()
        process.join()
        tally.silent = 0
    time.sleep(_PAUSE)


@click.command()
@click.option("--messages", type=click.IntRange(100), default=60_000, show_default=True, help="For each measurement.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Alone and attacked, in turn.")
@output_option
@click.pass_context
def main(context: click.Context, messages: int, rounds: int) -> None:
    """Attack a broker with users and TLS: guesses, half-open handshakes, broken certificates, oversized requests."""
    tally: Tally = multiprocessing.get_context("fork").RawValue(Tally)
    rates: dict[str, list[float]] = {"alone": [], "attacked": []}
    with temporary_directory() as directory:
        fortress = Fortress(directory)
        with fortress.broker as broker, MemoryWatch(broker) as watch, _trusting(fortress.ca):
            for number in range(rounds):
                rates["alone"].append(_measure(fortress, messages, 2 * number))
                with attacked(fortress.marks, tally):
                    rates["attacked"].append(_measure(fortress, messages, 2 * number + 1))
            findings = _findings(median(rates["alone"]), median(rates["attacked"]), tally, watch.peak)
    context.exit(report(context.ensure_object(Output), findings))


def _measure(fortress: Fortress, messages: int, number: int) -> float:
    return measure(fortress.target, Load(messages, queue=f"perf.victim.{number}"), lambda counts: None).messages_per_s


def _findings(alone: float, under_attack: float, tally: Tally, peak: int) -> list[Finding]:
    return [
        Finding("alone_per_s", round(alone)),
        Finding("attacked_per_s", round(under_attack)),
        at_least("attacked_to_alone", round(under_attack / alone, 3), MIN_SHARE),
        at_most("peak_rss_anon_bytes", peak, MAX_RSS_ANON),
        Finding("hostile_connections", tally.connections),
        at_least("guesses", tally.guesses, 1),
        at_least("errors", tally.errors, 1),
        at_least("closes", tally.closes, 1),
    ]


@contextmanager
def _trusting(ca: Path) -> Iterator[None]:
    """Meanwhile clients trust an authority."""
    os.environ[CA] = str(ca)
    try:
        yield
    finally:
        del os.environ[CA]


if __name__ == "__main__":
    main()
