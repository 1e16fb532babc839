"""What the system says about a broker's process."""

import json
import time
from pathlib import Path

from tests.acceptance.crash.broker_process import BrokerProcess


class Vitals:
    """A broker's connections and memory, from Linux's ``/proc``.

    Args:
        broker: a running broker.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        facts = json.loads((broker.data / "broker.json").read_text())
        self._process = Path("/proc") / str(facts["pid"])
        port = int(facts["stomp"].rpartition(":")[2])
        self._local = f"0100007F:{port:04X}"

    @property
    def connections(self) -> int:
        """How many STOMP connections it holds open."""
        table = (self._process / "net" / "tcp").read_text().splitlines()[1:]
        rows = [line.split() for line in table]
        # 0A: the listener itself. Without an inode no process has it: the system is only ending it.
        return sum(row[1] == self._local and row[3] != "0A" and row[9] != "0" for row in rows)

    def wait_for_connections(self, most: int, seconds: float) -> None:
        """Wait until it holds no more connections than so many.

        Raises:
            AssertionError: it still does.
        """
        deadline = time.monotonic() + seconds
        while (count := self.connections) > most:
            assert time.monotonic() < deadline, f"{count} connections after {seconds} s, not {most}"
            time.sleep(0.02)

    @property
    def anonymous_memory(self) -> int:
        """Its memory that is not backed by files, in bytes."""
        lines = (self._process / "status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["RssAnon"].split()[0]) * 1024
