"""Run many histories: ``python -m tests.simulation --seeds 1000``."""

import argparse
import logging
import sys

from tests.simulation.simulation import Simulation


def main() -> int:
    """Run the seeds that were asked for.

    Returns:
        The exit code: 1 if a history broke a promise.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    arguments = parser.parse_args()
    logging.disable()
    broken = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as failure:  # whatever it is, the history that led to it is what counts
            broken += 1
            print(*simulation.history, sep="\n")
            print(f"seed {seed}: {failure!r}\n")
    print(f"{arguments.seeds} histories, {broken} of them broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
