"""A broker with its console, as a user starts them."""

import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.acceptance.crash.broker_process import BrokerProcess

START_LIMIT = 60.0


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: object, **named: object) -> None:
        return None


def start(directory: Path, **settings: str) -> BrokerProcess:
    more = {"CONSOLE__ENABLED": "true", "CONSOLE__ADDRESS": "127.0.0.1:0"}
    broker = BrokerProcess(directory, settings=more | settings)
    broker.start()
    broker.port()  # wait until it listens
    return broker


def console_url(broker: BrokerProcess) -> str:
    """Where its console is, as the broker says it; waits until it is there."""
    opener = urllib.request.build_opener(_Stay)
    deadline = time.monotonic() + START_LIMIT
    while True:
        status, target = _asked(opener, f"{broker.http}/")
        if status == 307:
            return target.rstrip("/")
        assert status == 503
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.1)


def _asked(opener: urllib.request.OpenerDirector, url: str) -> tuple[int, str]:
    try:
        with opener.open(url, timeout=START_LIMIT) as answer:
            return int(answer.status), ""
    except urllib.error.HTTPError as error:
        return error.code, str(error.headers.get("location", ""))
