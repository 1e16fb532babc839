"""Run many histories, or one again: ``python -m tests.simulation --world streams --seeds 1000``, ``--replay FILE``."""

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.simulation.history import History
from tests.simulation.run import WORLDS, crashing_everywhere, failure_of, parse, shrink_failure

CHUNK = 100
"""How many seeds a process is given at once."""

MOST_REPORTS = 5
"""So many failing histories are shrunk and printed; of the others only the seeds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--world", choices=list(WORLDS), help="what they are about; all if it is not said")
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories of each world")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--everywhere", type=int, default=0, help="how many of them crash at each call of their stores")
    parser.add_argument("--replay", metavar="FILE", help="run the history in a file instead; - is the standard input")
    arguments = parser.parse_args()
    logging.disable()
    if arguments.replay:
        text = sys.stdin.read() if arguments.replay == "-" else Path(arguments.replay).read_text()
        return _replay(parse(text))
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    broken = 0
    with ProcessPoolExecutor(os.cpu_count(), initializer=logging.disable) as processes:
        for world in [arguments.world] if arguments.world else WORLDS:
            found = processes.map(partial(_failing, world), seeds, chunksize=CHUNK)
            broken += _report(found, f"histories of {world}")
            found = processes.map(partial(_failing_somewhere, world), seeds[: arguments.everywhere])
            broken += _report(found, f"histories of {world} crashed everywhere")
    return 1 if broken else 0


def _replay(history: History) -> int:
    failure = failure_of(history, print)
    print(f"\nit fails: {failure!r}" if failure else "\nevery promise is kept")
    return 1 if failure else 0


Found = tuple[int, History | None]
"""A seed, and a history of it that fails; None if there is none."""


def _failing(world: str, seed: int) -> Found:
    history = WORLDS[world].generate(seed)
    return seed, history if failure_of(history) else None


def _failing_somewhere(world: str, seed: int) -> Found:
    return seed, next(
        (history for history in crashing_everywhere(WORLDS[world].generate(seed)) if failure_of(history)), None
    )


def _report(results: Iterator[Found], what: str) -> int:
    count = broken = 0
    for seed, history in results:
        count += 1
        if history is not None:
            broken += 1
            print(f"seed {seed} broke a promise", flush=True)
            if broken <= MOST_REPORTS:
                print(report(history), flush=True)
    print(f"{count} {what}, {broken} of them broke a promise", flush=True)
    return broken


def report(history: History) -> str:
    """What a history that fails looks like when it is shortened: its lines, what happens in it, and how it ends."""
    shortest = shrink_failure(history)
    happened: list[str] = []
    failure = failure_of(shortest, happened.append)
    title = f"{len(history.steps)} steps, shrunk to {len(shortest.steps)}; run them again with --replay FILE:"
    return "\n".join([title, *shortest.lines(), "", *happened, f"It fails: {failure!r}", ""])


if __name__ == "__main__":
    sys.exit(main())
