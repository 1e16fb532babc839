"""The Java clients of the interoperability tests, with addresses of all brokers."""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from typing import Self

from tests.acceptance.crash.broker_process import START_SECONDS
from tests.interop.brokers import JAVA
from tests.interop.java_build import class_path
from tests.interop.kills import Outcome

LINE = 6
"""The line of ActiveMQ's client."""

PAUSE_MS = 40
"""How long each of the four producers rests after a message or a transaction."""

_FAILOVER = "initialReconnectDelay=20&maxReconnectDelay=200"


class JavaLoad:
    """Two producers and two consumers of each mode: with transactions and without. A context manager.

    Args:
        addresses: where the brokers take OpenWire.

    Raises:
        NoJavaTools: there is no Java here.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        urls = ",".join([f"tcp://{address}?wireFormat.maxInactivityDuration=3000" for address in addresses])
        arguments = ["Load", f"failover:({urls})?{_FAILOVER}", str(PAUSE_MS)]
        self._command = [*JAVA, "-cp", class_path(f"client{LINE}", "java"), *arguments]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=START_SECONDS)

    async def finish(self) -> dict[str, Outcome]:
        """Send nothing new, and wait until all has arrived: what is known of each mode."""
        output, _ = await asyncio.to_thread(self._process.communicate, "stop\n")
        lines = output.splitlines()
        assert lines[1:], "the Java program gave up; its messages above say why"
        return {mode: Outcome(**counts) for mode, counts in json.loads(lines[-1]).items()}
