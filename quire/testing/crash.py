"""A broker that kills itself: ``python -m quire.testing.crash --point inside --nth 17 --store URL``.

It is the broker that ``quire broker start`` runs, without the HTTP API, on a store that ends the process at a point of
its nth commit, or fails there. Settings that have no flag here come from the environment.
"""

import argparse
import os
import sys

from quire.errors import QuireError
from quire.server.process import run
from quire.settings import load
from quire.store.base import Store
from quire.testing.faults import Fault, FaultyStore, Point, die, io_error, no_space

FAULTS: dict[str, Fault] = {"kill": die, "no-space": no_space, "io-error": io_error}
"""What can happen, by its name on the command line."""


def main() -> int:
    """Run the broker; returns the exit code, if it stops otherwise than by its fault."""
    options = _parser().parse_args()
    flags = {
        "store.url": options.store,
        "store.data": options.data,
        "store.sync": options.sync,
        "stomp.address": options.stomp,
        "openwire.address": options.openwire,
    }

    def wrap(store: Store) -> Store:
        faulty = FaultyStore(store)
        faulty.at(Point(options.point), options.nth, FAULTS[options.fault], options.times)
        return faulty

    try:
        return run(load(None, os.environ, flags), standby=False, wrap=wrap)
    except QuireError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return error.entry.exit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m quire.testing.crash", description="Run a broker with a fault.")
    parser.add_argument("--point", choices=list(Point), default=Point.INSIDE, help="where in the commit")
    parser.add_argument("--nth", type=int, default=1, metavar="N", help="in which commit, counted from 1")
    parser.add_argument("--fault", choices=list(FAULTS), default="kill", help="what happens there")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="in how many commits, from the nth on")
    parser.add_argument("--store", metavar="URL", help="as of `quire broker start`")
    parser.add_argument("--data", metavar="DIRECTORY", help="as of `quire broker start`")
    parser.add_argument("--sync", metavar="WHEN", help="as the setting store.sync")
    for protocol in ("stomp", "openwire"):
        parser.add_argument(f"--{protocol}", metavar="HOST:PORT", help="as of `quire broker start`")
    return parser


if __name__ == "__main__":
    sys.exit(main())
