"""Quire's command line, and the processes of its shards, with the toy protocol in the place of STOMP.

This one assignment is all that registers it.
"""

import runpy
import sys
from functools import partial
from typing import Any

from quire.cli.main import main
from quire.server import service
from quire.server.cluster import broker_process
from tests.conformance.doors.toy_door import ToyDoors

service.PROTOCOLS["stomp"] = ToyDoors


def _run(run: Any, settings: Any, file: Any, flags: Any, _: str, console: Any) -> int:
    """Run a broker with shards; what its shards run is this module too."""
    return int(run(settings, file, flags, "tests.conformance.doors.toy_process", console))


if __name__ == "__main__":
    if sys.argv[1].isdecimal():  # a shard: the descriptor of its socket
        runpy.run_module("quire.http.shard", run_name="__main__")
    else:
        broker_process.run = partial(_run, broker_process.run)
        main()
