"""A broker of a cluster with a planted fault: ``python -m benchmarks.cluster.planted FAULT cluster start ...``.

It is here to be found out; ``benchmarks.takeover.planted`` has the faults.
"""

import os
import sys
from typing import Any

from benchmarks.cluster.planted_shard import FAULT
from quire.cli.main import main
from quire.server.cluster import broker_process

_run = broker_process.run


def run_planted(settings: Any, file: Any, flags: Any, module: str, console: Any) -> int:
    assert module == "quire.http.shard"
    return _run(settings, file, flags, "benchmarks.cluster.planted_shard", console)


if __name__ == "__main__":
    os.environ[FAULT] = sys.argv.pop(1)
    broker_process.run = run_planted
    main()
