"""``python -m tests.spark.ground_truth``: the counts of an audit beside what clients have seen for themselves.

A broker is used in every way that the ledger tells of, and is killed after each round: at rest, or with sends,
acknowledgements and rejections under way. Then every count of ``audit`` has to be that of the clients, for each
destination; and in copies of the ledger with one event less, or one event twice, that has to show.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import quire.spark
from quire.spark.pipelines.command import LEDGER, Place
from quire.spark.pipelines.files import Table, print_table
from tests.spark.ground_truth.acts import Acts
from tests.spark.ground_truth.comparison import Count, compared


def main() -> None:
    """Run it, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="how many; after each the broker is killed [10]")
    parser.add_argument("--seed", type=int, default=1, help="of what is random [1]")
    given = parser.parse_args()
    spark = quire.spark.session(
        spark__ui__enabled="false", spark__ui__showConsoleProgress="false", spark__sql__shuffle__partitions="2"
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        acts = Acts(Path(directory), given.seed)
        try:
            acts.play(given.rounds)
            ledger = Place(url=acts.broker.api.url).read(spark, LEDGER).localCheckpoint()
            depths = acts.depths()
        finally:
            acts.broker.kill()
    found = compared(acts.truths, ledger, depths)
    spark.stop()
    print_table(Console(width=160), "Counts: of clients, and of the audit", _table(found.counts))
    loose = [count for count in found.counts if count.true.least != count.true.most]
    print(f"{acts.kills} kills, {len(found.counts)} counts, {len(loose)} of them with bounds")
    print(f"counts that are wrong: {len(found.wrong)}")
    for fault, counts in found.shown.items():
        print(f"{fault}: {', '.join([count.name for count in counts]) or 'NOT FOUND'}")
    sys.exit(1 if found.wrong or found.missed else 0)


def _table(counts: list[Count]) -> Table:
    names = sorted({count.destination for count in counts})
    cells = {(count.name, count.destination): _cell(count) for count in counts}
    rows = [[name, *[cells.get((name, of), "") for of in names]] for name in dict.fromkeys(c.name for c in counts)]
    return Table(["", *names], rows)


def _cell(count: Count) -> str:
    mark = "" if count.is_right else "  WRONG"
    return f"{count.true} / {count.found}{mark}"


if __name__ == "__main__":
    main()
