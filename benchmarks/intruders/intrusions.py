"""What is tried without a login, one function for each kind; none of them waits (``attacks.py``)."""

import contextlib
import itertools
import shutil
import socket
import ssl
import subprocess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from benchmarks.scenarios.hostile import Attacker, Steps, Tally, keep_open, take_turns
from quire.cli.perf.load import Target

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
