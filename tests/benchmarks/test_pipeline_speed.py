"""The benchmark of reads by Spark: its tables, and a run with little to read."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from benchmarks.compare import replace_table
from benchmarks.pipeline import report
from benchmarks.pipeline.__main__ import TABLES, main
from benchmarks.pipeline.reading import Run, machine_seconds, tree
from benchmarks.pipeline.speed import STORE, Audited, Beside, Measured


def run(elapsed: float, *bulk: float, machine: float = 10.0, java: float = 1.0) -> Run:
    return Run(1_000_000, elapsed, java, 1.0, 0.5, list(bulk), machine)


def test_the_table_compares_warm_runs_with_those_of_kafka() -> None:
    found = [
        Measured("quire", "parquet", "2", [run(40), run(10, 5.0), run(8, 5.0), run(16, 5.0)]),
        Measured("quire", "parquet", STORE, [run(30), run(4)]),
        Measured("quire", "noop", "1", [run(30), run(4)]),
        Measured("kafka", "parquet", "", [run(20), run(5)]),
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.table(found, 2).splitlines()]
    assert [row[:6] for row in rows[2:]] == [
        ["bulk server, 2 processes", "Parquet", "40.0 s", "10.0 s", "100,000/s", "0.50"],
        ["the store itself", "Parquet", "30.0 s", "4.0 s", "250,000/s", "1.25"],
        ["bulk server, 1 process", "nothing", "30.0 s", "4.0 s", "250,000/s", ""],
        ["Kafka's source", "Parquet", "20.0 s", "5.0 s", "200,000/s", "1.00"],
    ]
    assert rows[2][6:10] == ["1.0 µs", "1.0 µs", "5.0 µs", "0.5 µs"]
    assert {len(row) for row in rows} == {11}


def test_a_table_of_audits_has_their_rates() -> None:
    found = [Audited(0, 9.0), Audited(20_000, 10.0), Audited(1_000_000, 40.0)]
    assert report.audits(found).splitlines()[2:] == [
        "| Spark alone | 9.0 s |  |",
        "| 20,000 | 10.0 s | 2,000 |",
        "| 1,000,000 | 40.0 s | 25,000 |",
    ]


def test_a_number_of_messages_without_a_table_is_refused_before_anything_is_measured() -> None:
    result = CliRunner().invoke(main, ["speed", "--messages", "2000", "--write"])
    assert result.exit_code == 2
    assert "no table of 2,000 messages" in result.output


@pytest.mark.parametrize("name", [*TABLES.values(), "audit times", "confirm beside reads"])
def test_the_page_has_a_place_for_each_table(name: str) -> None:
    assert replace_table(report.PAGE.read_text("utf-8"), name, "new").count("\nnew\n") == 1


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (run(10, 9.5, machine=12), "the bulk server"),
        (run(10, 5.0, 5.0, java=8.0, machine=19), "processors"),
        (run(10, 5.0, machine=19), "processors, which had other work"),
        (run(10, 5.0, machine=10), "waiting"),
    ],
)
def test_what_is_busy_all_the_time_is_what_bounds_a_read(measured: Run, expected: str) -> None:
    assert report.bound(measured, 2) == expected


def test_the_page_has_a_place_for_what_is_measured() -> None:
    page = report.PAGE.read_text("utf-8")
    for name in ("spark reads", "confirm beside reads"):
        assert f"<!-- {name}: begin -->" in page
    assert "90,000/s beside a reader (0.90; medians of 3 rounds)" in report.beside(
        Beside([100_000, 90_000, 110_000], [90_000, 80_000, 95_000])
    )


def test_what_a_process_and_its_children_use_is_counted() -> None:
    before, machine = tree(os.getpid()), machine_seconds()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            while (used := tree(os.getpid()).others.get(child.pid, 0.0)) < 0.05:
                pass
        finally:
            child.kill()
    assert used <= machine_seconds() - machine
    assert tree(os.getpid()).own > before.own
