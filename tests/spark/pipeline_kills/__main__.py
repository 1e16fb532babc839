"""``python -m tests.spark.pipeline_kills --kills 50``: pipelines on a cluster with kills, and every row counted.

A standalone cluster with two workers runs three streaming queries at once: a stream to windows with a watermark to
Parquet, the same to a stream, and a replay to a queue. Meanwhile Python workers, executors, workers, the driver, its
Python, the broker and its bulk server are killed at random moments. At the end each window has to be in the files and
in the stream once and with the right sum, and each replayed message in the queue once and in order.
"""

import argparse
import math
import sys
import tempfile
from pathlib import Path
from random import Random

import quire.spark
from quire.clock import SystemClock
from tests.spark.pipeline_kills.findings import findings
from tests.spark.pipeline_kills.killing import FAR, VICTIMS, Killing


def main() -> None:
    """Run it, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how many [50]")
    parser.add_argument("--seed", type=int, default=1, help="of what is random [1]")
    parser.add_argument("--pause", type=float, default=2.0, help="the longest time before a kill, in seconds [2]")
    parser.add_argument("--seconds", type=float, default=math.inf, help="kill nothing after so long [no limit]")
    given = parser.parse_args()
    random, clock = Random(given.seed), SystemClock()
    victims = random.choices(list(VICTIMS), list(VICTIMS.values()), k=given.kills)
    began = clock.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        killing = Killing(Path(directory), given.seed, given.kills)
        killing.run(victims, given.pause, given.seconds)
        spark = quire.spark.session(
            spark__ui__enabled="false", spark__ui__showConsoleProgress="false", spark__sql__shuffle__partitions="2"
        )
        spark.sparkContext.setLogLevel("ERROR")
        found = findings(spark, killing.broker, killing.work, FAR)
        spark.stop()
    seconds = clock.monotonic() - began
    print(f"killed {dict(killing.killed)} in {seconds:.0f} s; the driver gave up {killing.failed} times")
    print(found)
    print("rows that are wrong:", {name: len(rows) for name, rows in found.wrong.items()})
    for name, rows in found.wrong.items():
        print(*[f"{name}: {row}" for row in rows[:10]], sep="\n", end="\n" if rows else "")
    sys.exit(1 if any(found.wrong.values()) or not (found.windows and found.replayed) else 0)


if __name__ == "__main__":
    main()
