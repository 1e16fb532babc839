"""Long runs of the crash test: ``python -m tests.acceptance.crash --rounds 200 --store sqlite``."""

import argparse
import asyncio
import secrets
import tempfile
from pathlib import Path

from tests.acceptance.crash.rounds import Plan, run_rounds


def main() -> None:
    """Run it. A failure ends it with the assertion; the directory with store and log is then kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.crash")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--store", choices=["lmdb", "sqlite"], default="lmdb")
    parser.add_argument("--sync", choices=["always", "interval", "never"], default="always")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--shards", type=int, default=1)
    options = parser.parse_args()
    plan = Plan(options.store, options.rounds, options.seed, options.sync, options.shards)
    with tempfile.TemporaryDirectory(prefix="quire-crash-") as directory:
        print(f"{plan} in {directory}", flush=True)
        asyncio.run(run_rounds(plan, Path(directory), lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
