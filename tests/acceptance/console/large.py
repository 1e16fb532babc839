"""The console at size: ``python -m tests.acceptance.console.large``.

A broker with 10,000 queues, 1,000,000 messages and 500 connections. Headless Chromium opens every page; the table says
how long each took to be shown. Then ``confirm`` is measured, beside an open overview and without, in turn.
"""

import socket
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser

from quire.cli.perf.load import Link, Load, Target
from quire.cli.perf.measure import measure
from tests.acceptance.console import own_console
from tests.acceptance.console.all_pages import ALL_PAGES
from tests.acceptance.console.chromium import MISSING, PROGRAM, Tab, chromium
from tests.acceptance.console.demo import Demo

QUEUES, MESSAGES, CONNECTIONS = 10_000, 1_000_000, 500

MOST_SECONDS = 1.0
"""How long a page may take to be shown."""

MIN_SHARE = 0.95
"""What ``confirm`` must keep beside an open console."""

LISTS = ("queues", "messages", "topics", "streams", "connections", "consumers")
VISITS, ROUNDS = 3, 7
LOAD = 150_000


def main() -> int:
    if not PROGRAM:
        print(MISSING, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        broker = own_console.start(Path(directory))
        try:
            Demo(broker.http, broker.port()).prepare()
            connections = fill(broker.port())
            with chromium() as browser:
                url = own_console.console_url(broker)
                is_kept = visit(browser, url)
                is_kept &= beside(browser, url, Target("127.0.0.1", broker.port()))
            for connection in connections:
                connection.close()
        finally:
            broker.stop()
    return 0 if is_kept else 1


def fill(port: int) -> list[socket.socket]:
    link = Link(Target("127.0.0.1", port))
    body = b"x" * 200
    for number in range(QUEUES):
        head = b"SEND\ndestination:/queue/large.%05d\npersistent:true\ncontent-length:200\n" % number
        one = b"%b\n%b\0" % (head, body)
        link.send(one * (MESSAGES // QUEUES - 1) + b"%breceipt:%d\n\n%b\0" % (head, number, body))
        if number % 100 == 99:
            link.receive_until(b"receipt-id:%d\n" % number)
    link.disconnect()
    return [consumer(port, number) for number in range(CONNECTIONS)]


def consumer(port: int, number: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    frames = f"CONNECT\naccept-version:1.2\nhost:/\nclient-id:worker-{number}\n\n\0SUBSCRIBE\nid:1\nack:client\n"
    connection.sendall(f"{frames}activemq.prefetchSize:1\ndestination:/queue/large.{number:05}\n\n\0".encode())
    return connection


def visit(browser: Browser, url: str) -> bool:
    is_kept = True
    print("page          first  median  seconds until it is shown")
    for name, path in ALL_PAGES.items():
        seconds = [_seconds(browser, url, name, path) for _ in range(VISITS)]
        is_kept &= median(seconds) <= MOST_SECONDS
        print(f"{name:12} {seconds[0]:6.2f}  {median(seconds):6.2f}", flush=True)
    return is_kept


def _seconds(browser: Browser, url: str, name: str, path: str) -> float:
    """How long a page takes in a tab that has been at another page before."""
    tab = Tab(browser, url)
    tab.open("/log")
    began = time.monotonic()
    tab.open(path)
    if name in LISTS:
        tab.page.wait_for_selector("tbody tr td")
    seconds = time.monotonic() - began
    tab.close()
    return seconds


def beside(browser: Browser, url: str, target: Target) -> bool:
    """Measure ``confirm`` with the overview open and without, in turn; whether it keeps its rate."""
    alone, watched = [], []
    for _ in range(ROUNDS):
        alone.append(_rate(target))
        tab = Tab(browser, url)
        tab.open("/")
        watched.append(_rate(target))
        tab.close()
    share = median([one / other for one, other in zip(watched, alone, strict=True)])
    print(f"confirm alone {median(alone):,.0f}/s, beside the overview {median(watched):,.0f}/s: {share:.3f}")
    return share >= MIN_SHARE


def _rate(target: Target) -> float:
    return measure(target, Load(LOAD), lambda counts: None).messages_per_s


if __name__ == "__main__":
    sys.exit(main())
