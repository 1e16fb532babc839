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
_NOTHING = "from quire.spark import session; session().range(10).count()"


class Audited(NamedTuple):
    """One audit; of no messages, Spark alone."""

    messages: int
    seconds: float


def measure_audit(directory: Path, messages: int, say: Callable[[str], None]) -> Audited:
    """Send and receive so many messages with ``confirm`` while the ledger is on, and audit it.

    Raises:
        CalledProcessError: the audit failed, or its verdict is not OK.
        RuntimeError: the audit counted other messages.
    """
    with OwnBroker(directory, {"store": "lmdb"}, {"QUIRE_POLICY__LEDGER": "true"}) as broker:
        say(f"{messages:,} messages are sent and received")
        measure(broker.target, Load(messages, **SCENARIOS["confirm"].changes), no_tick)
        say("the ledger is audited")
        command = (_AUDIT, "pipeline", "run", "audit", "--url", broker.api.url, "--drained", "--output", "json")
        seconds, output = _timed(*command)
    found = json.loads(output)
    if (found["verdict"], found["total"]["acknowledged"]) != ("ok", messages):
        raise RuntimeError(f"the audit says {found}")
    return Audited(messages, seconds)


def measure_nothing() -> Audited:
    """Let Spark start and count ten rows: the time in which no audit can be done."""
    return Audited(0, _timed(_NOTHING)[0])


def _timed(*program: str) -> tuple[float, bytes]:
    clock = SystemClock()
    began = clock.monotonic()
    done = subprocess.run([sys.executable, "-c", *program], stdout=subprocess.PIPE, check=True)
    return clock.monotonic() - began, done.stdout
