"""A client with a login and TLS, alone and while others without a login attack the broker: who must not notice whom."""

import contextlib
import itertools
import multiprocessing
import shutil
import socket
import ssl
import subprocess
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from benchmarks.fortress import Fortress, trusting
from benchmarks.rig import MemoryWatch, temporary_directory
from benchmarks.scenarios.hostile import Attacker, Steps, Tally, keep_open, take_turns, under_attack
from benchmarks.scenarios.scenario import Finding, at_least, at_most, report
from quire.cli.output import Output, output_option
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import measure
from quire.settings import split_address

GUESSES = 10_000
"""How many passwords are tried."""

SOURCE = "127.0.0.66"
"""Where intruders come from; the client that has a login comes from another address."""

GUESS_REST = 0.004
KEY_UPDATES = b"K\n" * 1000


class Marks(NamedTuple):
    """The ports of the attacked broker, and a client certificate that no authority of it has signed."""

    stomp: Target
    http: Target
    foreign: Path


def intrude(marks: Marks, tally: Tally, stop: Event) -> None:
    hello = client_hello()
    with contextlib.ExitStack() as left:
        steps = [
            _guesses(marks.stomp, tally),
            keep_open(marks.stomp, tally, hello[: len(hello) // 2], SOURCE),
            _once(marks.stomp, tally, b"\x16\x03\x01\x40\x00\x01\x02\x00\x00" + b"x" * 4000, 0.02),
            _once(marks.stomp, tally, b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", 0.02),
            _once(marks.stomp, tally, b"CONNECT\n" + (b"h:" + b"x" * 9000 + b"\n") * 20, 0.05),
            _once(marks.http, tally, b"GET /api/v1/queues HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000, 0.05),
            _once(marks.http, tally, b"POST /api/v1/queues/q/messages HTTP/1.1\r\nHost: x\r\n"
                  b"Content-Length: 99999999\r\n\r\n" + b"x" * 60_000, 0.05),
            _foreign_certificates(marks, tally),
            _key_updates(marks.stomp, left),
        ]  # fmt: skip
        take_turns(steps, stop)


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def _guesses(target: Target, tally: Tally) -> Steps:
    """Passwords of a user that is there, and of others."""
    for number in itertools.count():
        if number >= GUESSES:
            yield 1.0
            continue
        name = "victim" if number % 2 else f"user-{number}"
        attacker = Attacker(target, tally, SOURCE)
        attacker.send(f"CONNECT\naccept-version:1.2\nhost:/\nlogin:{name}\npasscode:guess-{number}\n\n\0".encode())
        tally.guesses = number + 1
        yield GUESS_REST
        attacker.look()
        attacker.close()


def _once(target: Target, tally: Tally, data: bytes, rest: float) -> Steps:
    """Bytes that are refused, again and again."""
    while True:
        attacker = Attacker(target, tally, SOURCE)
        attacker.send(data)
        yield rest
        attacker.look()
        attacker.close()


def _foreign_certificates(marks: Marks, tally: Tally) -> Steps:
    """Handshakes with a certificate that is worth nothing."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(marks.foreign)
    while True:
        with contextlib.suppress(OSError), socket.create_connection((marks.stomp.host, marks.stomp.port)) as raw:
            raw.setblocking(False)
            with context.wrap_socket(raw, do_handshake_on_connect=False) as connection:
                for _ in range(5):
                    with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        connection.do_handshake()
                    yield 0.02
            tally.closes += 1
        yield 0.1


def _key_updates(target: Target, left: contextlib.ExitStack) -> Steps:
    """TLS that only changes its keys, as fast as OpenSSL does it; without its program this one is left out."""
    program = shutil.which("openssl")
    while program is not None:
        client = subprocess.Popen(
            [program, "s_client", "-connect", f"{target.host}:{target.port}", "-tls1_3"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        left.callback(client.wait)
        left.callback(client.kill)
        assert client.stdin is not None
        yield 0.5
        with contextlib.suppress(OSError):
            client.stdin.write(KEY_UPDATES)
            client.stdin.flush()
        yield 2.0
        client.kill()
        client.wait()
        client.stdin.close()
    while True:
        yield 1.0


MIN_SHARE = 0.8
"""How fast the client must be under attack, as a share of its rate alone."""

MAX_RSS_ANON = 150_000_000
"""How much memory the broker's process may take, in bytes."""

_HALF_OPEN = 300
"""With so many half-open handshakes the measurement begins; their number goes on to grow."""


def _marks(fortress: Fortress) -> Marks:
    broker = fortress.broker
    return Marks(broker.target, Target(*split_address(broker.api.url.rpartition("/")[2])), fortress.foreign)


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
        with fortress.broker as broker, MemoryWatch(broker) as watch, trusting(fortress.ca):
            for number in range(rounds):
                rates["alone"].append(_measure(fortress.target, messages, 2 * number))
                with under_attack(intrude, (_marks(fortress), tally), tally, _HALF_OPEN, watch.look):
                    rates["attacked"].append(_measure(fortress.target, messages, 2 * number + 1))
            findings = _findings(median(rates["alone"]), median(rates["attacked"]), tally, watch.peak)
    context.exit(report(context.ensure_object(Output), findings))


def _measure(target: Target, messages: int, number: int) -> float:
    return measure(target, Load(messages, queue=f"perf.victim.{number}"), lambda counts: None).messages_per_s


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


if __name__ == "__main__":
    main()
