"""Long runs: ``python -m benchmarks.takeover --rounds 100``."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from benchmarks.takeover.planted import FAULTS, PLANTED
from benchmarks.takeover.rounds import ends_well
from benchmarks.takeover.run import Plan, run, table


def main() -> int:
    """Run it. A broken promise ends it with the assertion, and a takeover that took too long with exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kind", action="append", default=[], help="only rounds of this kind; may be repeated")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--planted", choices=list(FAULTS), help="brokers with this fault: the run must fail")
    options = parser.parse_args()
    plan = Plan(options.rounds, options.seed, options.kind, [*PLANTED, options.planted] if options.planted else [])
    with tempfile.TemporaryDirectory(prefix="quire-takeover-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)  # the servers run as another user
        print(f"{plan} in {directory}", flush=True)
        result = asyncio.run(run(plan, Path(directory), lambda text: print(text, flush=True)))
    commits = result.commits
    print(table(result.outages))
    print(
        f"{result.confirmed} messages confirmed, none lost; {result.redelivered} redelivered, all flagged; "
        f"{result.suppressed} dead letters that the client made of messages that it had before; "
        f"{commits.commits} commits in {commits.epochs} epochs of {commits.owners} owners, never two at one time; "
        f"connections lost in a commit: {dict(result.lost_commits)}, {commits.decided} epochs to find out what was made"
    )
    slow = [outage for outage in result.outages if not ends_well(outage)]
    print("".join([f"too slow: {outage.kind} in {outage.seconds:.2f} s\n" for outage in slow]), end="")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
