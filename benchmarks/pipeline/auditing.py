"""How long an audit takes: of the ledger of so many messages, as a user runs it, the start of Java included."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.load import no_tick
from benchmarks.rig import OwnBroker
from quire.cli.perf.load import SCENARIOS, Load
from quire.cli.perf.measure import measure
from quire.clock import SystemClock

_AUDIT = "from quire.cli.main import main; main()"


class Audited(NamedTuple):
    """One audit."""

    messages: int
    seconds: float


def measure_audit(directory: Path, messages: int, say: Callable[[str], None]) -> Audited:
    """Send and receive so many messages with ``confirm`` while the ledger is on, and audit it.

    Raises:
        RuntimeError: the audit says something else than that all of them were delivered once.
    """
    with OwnBroker(directory, {"store": "lmdb"}, {"QUIRE_POLICY__LEDGER": "true"}) as broker:
        say(f"{messages:,} messages are sent and received")
        measure(broker.target, Load(messages, **SCENARIOS["confirm"].changes), no_tick)
        say("the ledger is audited")
        clock = SystemClock()
        began = clock.monotonic()
        command = [sys.executable, "-c", _AUDIT, "pipeline", "run", "audit", "--url", broker.api.url, "--drained"]
        done = subprocess.run([*command, "--output", "json"], stdout=subprocess.PIPE, check=False)
        seconds = clock.monotonic() - began
    found = json.loads(done.stdout or b"{}")
    if done.returncode or (found["verdict"], found["total"]["acknowledged"]) != ("ok", messages):
        raise RuntimeError(f"the audit ended with {done.returncode}, and says {found}")
    return Audited(messages, seconds)
