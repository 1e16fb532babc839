"""The pipelines' commands: options, exit codes, what they print and write."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from quire.cli.main import main
from quire.errors import SparkEnded
from quire.spark.pipelines import replay
from quire.spark.pipelines.command import PipelineCommand, live
from quire.spark.pipelines.ledger import SCHEMA
from quire.spark.pipelines.replay_plan import Plan
from tests.docs.pages import ROOT
from tests.spark import stored
from tests.spark.ledger_model import Ledger
from tests.spark.message_rows import frame, message

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession) -> Run:
    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["pipeline", "run", *map(str, arguments)], catch_exceptions=False)

    return invoke


@pytest.fixture
def ledger(spark: SparkSession, tmp_path: Path) -> Path:
    """A ledger on disk: two messages came and went, a third one came."""
    return written(spark, tmp_path / "ledger", messages=3)


@pytest.fixture
def good(spark: SparkSession, tmp_path: Path) -> Path:
    """A ledger on disk: two messages came and went."""
    return written(spark, tmp_path / "good", messages=2)


def written(spark: SparkSession, directory: Path, messages: int) -> Path:
    ledger = Ledger()
    for sequence in range(1, messages + 1):
        ledger.add("queue://orders", "send", sequence)
        ledger.add("queue://orders", "commit", sequence)
        if sequence < 3:
            ledger.add("queue://orders", "dispatch", sequence, "[bold]c1\x1b")
            ledger.now += 5
            ledger.add("queue://orders", "acknowledge", sequence, "[bold]c1\x1b")
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    rows = [tuple(event.row()[name] for name in names) for event in ledger.events]
    spark.createDataFrame(rows, SCHEMA).write.parquet(str(directory))
    return directory


def test_an_audit_says_ok_and_writes_its_page(run: Run, good: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("audit", "--parquet", good, "--drained", "--report", page)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "OK: 2 delivered, in order, once"
    assert "[bold]c1\\x1b" in result.stdout
    text = page.read_text("utf-8")
    assert "OK: 2 delivered, in order, once" in text
    assert "http://" not in text
    assert "<script" not in text


def test_an_audit_without_a_fault_names_what_was_not_delivered(run: Run, ledger: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("audit", "--parquet", ledger, "--depth", "orders=1", "--report", page)
    assert result.exit_code == 6
    assert result.stdout.splitlines()[-1] == "NO FAULT, but not all were delivered once: 1 open"
    assert '<p class="verdict mixed">NO FAULT, but' in page.read_text("utf-8")


def test_an_audit_that_is_not_ok_exits_with_1_and_says_why(run: Run, ledger: Path) -> None:
    result = run("audit", "--parquet", ledger, "--drained")
    assert result.exit_code == 1
    assert "queue://orders: 1 lost" in result.stdout
    assert result.stdout.splitlines()[-1] == "NOT OK: 1 lost"


def test_an_audit_for_programs_goes_on_where_it_was(run: Run, ledger: Path, tmp_path: Path) -> None:
    for _ in range(2):
        result = run("--output", "json", "audit", "--parquet", ledger, "--work", tmp_path / "work")
        found = json.loads(result.stdout)
        assert (found["verdict"], found["total"]["committed"], found["total"]["open"]) == ("no fault", 3, 1)


def test_an_archive_and_its_next_run(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    source, directory = tmp_path / "source", tmp_path / "archive"
    frame(spark, [message(1), message(2)]).write.parquet(str(source))
    assert "archived 2 messages" in run("archive", directory, "--parquet", source).stdout
    frame(spark, [message(3)]).write.mode("append").parquet(str(source))
    assert "archived 1 messages" in run("archive", directory, "--parquet", source).stdout
    assert spark.read.parquet(str(directory)).count() == 3


def test_a_store_is_archived_with_headers_and_the_next_run_takes_what_came_since(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    url, directory = f"lmdb://{tmp_path}/store", tmp_path / "archive"
    arguments = ("archive", directory, "--store", url, "--destination", "orders", "--destination", "stream://events")
    with stored.opened(url) as store:
        lanes = {
            "queue://orders": [[stored.message(1), stored.message(2)]],
            "stream://events": [[stored.message(1)], []],
        }
        stored.fill(store, lanes)
        assert "archived 3 messages" in run(*arguments).stdout
        stored.append(store, 1, [stored.message(3)])
        assert "archived 1 messages" in run(*arguments).stdout
    rows = spark.read.parquet(str(directory)).where("destination = 'queue://orders'").orderBy("offset").collect()
    assert [(row.offset, row.headers["n"]) for row in rows] == [(1, "1"), (2, "2"), (3, "3")]


def test_an_archive_is_compacted_by_its_next_run_or_alone(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    source, directory = tmp_path / "source", tmp_path / "archive"
    for offset in (1, 2, 3):
        frame(spark, [message(offset)]).write.mode("append").parquet(str(source))
        result = run("archive", directory, "--parquet", source, *(["--compact"] if offset == 3 else []))
    assert "archived 1 messages" in result.stdout
    assert "merged 2 small files" in result.stdout
    assert run("archive", directory, "--compact").stdout.splitlines() == [
        f"archived 0 messages to {directory}", "merged 0 small files",
    ]  # fmt: skip
    assert spark.read.parquet(str(directory)).count() == 3


def test_latencies_for_people_and_programs(run: Run, good: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert "delivery to acknowledgement" in run("latency", "--parquet", good, "--report", page).stdout
    assert "send to acknowledgement" in page.read_text("utf-8")
    found = json.loads(run("latency", "--parquet", good, "--output", "json").stdout)
    assert found["destinations"][0]["handling"] == {"count": 2, "p50": 5, "p95": 5, "p99": 5, "max": 5}


def test_dead_letters_for_people_and_programs(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    frame(spark, [message(1, "queue://DLQ")]).write.parquet(str(tmp_path / "letters"))
    page = tmp_path / "page.html"
    result = run("dead-letters", "--parquet", tmp_path / "letters", "--report", page)
    assert "1 dead letters" in result.stdout
    assert "<h2>By cause</h2>" in page.read_text("utf-8")
    found = json.loads(run("dead-letters", "--parquet", tmp_path / "letters", "--output", "json").stdout)
    assert found["causes"][0]["cause"] == "unknown"


def test_dead_letters_are_read_from_all_dead_letter_queues_of_a_store(run: Run, tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}/store"
    names = ["ActiveMQ.DLQ", "ActiveMQ.DLQ.Queue.orders", "%DLQ%billing", "orders"]
    with stored.opened(url) as store:
        stored.fill(store, {f"queue://{name}": [[stored.message(1)]] for name in names})
    found = json.loads(run("dead-letters", "--store", url, "--output", "json").stdout)
    assert sorted(row["destination"] for row in found["queues"]) == sorted(f"queue://{name}" for name in names[:3])


def test_a_replay_is_settled_once(
    run: Run, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Plan, str]] = []
    monkeypatch.setattr(replay, "send", lambda spark, plan, work, broker: sent.append((plan, broker["broker.url"])))
    frame(spark, [message(1), message(2), message(3)]).write.parquet(str(tmp_path / "source"))
    arguments = ("replay", tmp_path / "work", "--parquet", tmp_path / "source", "--where", "offset > 1", "--rate", 1)
    first = run(*arguments, "--broker", "http://127.0.0.1:1", "--output", "json")
    again = run(*arguments, "--broker", "http://127.0.0.1:1")
    assert json.loads(first.stdout)["messages"] == 2
    assert "continuing the replay" in again.stderr
    assert [plan for plan, _ in sent] == [sent[0][0]] * 2
    assert (sent[0][0].chunks, sent[0][1]) == (2, "http://127.0.0.1:1")


def test_what_spark_was_told_is_what_the_user_is_told(run: Run, tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}/nothing"
    result = run("archive", tmp_path / "archive", "--store", url, "--destination", "orders")
    assert result.exit_code == 5
    assert result.stderr.splitlines()[-2:] == [
        f"error: there is no store at {url}",
        "what to do: Check the store's URL, and that its server runs. (store-unreachable)",
    ]


@pytest.mark.parametrize(
    "arguments",
    [("audit",), ("audit", "--work", "w"), ("archive", "d"), ("replay", "d"), ("dead-letters",), ("latency",)],
)
def test_missing_files_are_an_error_that_names_them(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, "--parquet", "nothing")
    assert result.exit_code == 2
    assert "error: there are no Parquet files in nothing" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("audit", "--parquet", "x", "--store", "lmdb:///y"), "one of --url, --store, --parquet"),
        (("audit", "--parquet", "x", "--follow", "1s"), "--follow needs --work"),
        (("audit", "--parquet", "x", "--browse", "orders"), "--browse needs --url or --store"),
        (("audit", "--parquet", "x", "--destination", "stream://s"), "--destination stream://s needs --subscriber"),
        (("audit", "--parquet", "x", "--depth", "orders=many"), "not a number of messages"),
        (("audit", "--parquet", "x", "--window", "soon"), "is not a duration"),
        (("archive", "d"), "give --destination NAME or --ledger"),
        (("archive", "d", "--compact", "--partition-by", "destination"), "needs day among the columns"),
        (("archive", "d", "--ledger", "--file-size", "big"), "is not a size"),
        (("archive", "d", "--compact", "--follow", "1m"), "--follow is for streams"),
        (("archive", "d", "--parquet", "x", "--ledger"), "--parquet is archived as a whole"),
        (("archive", "d", "--destination", "orders", "--follow", "1s"), "--follow is for streams"),
        (("replay", "d"), "give --destination with"),
        (("dead-letters", "--parquet", "x", "--destination", "DLQ"), "leave out --destination"),
        (("dead-letters", "--option", "x"), "is not NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    monkeypatch.setattr("quire.spark.pipelines.command.session", lambda *_, **__: pytest.fail("Spark was started"))
    result = CliRunner().invoke(main, ["pipeline", "run", *arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert text in result.stderr


OUT_OF_MEMORY = """
import click
from quire.spark.pipelines.command import PipelineCommand, run_alone, spark_options, start_session

@click.command(cls=PipelineCommand)
@spark_options
def greedy(cores, memory):
    spark = start_session("greedy", cores, memory)
    spark.range(3).selectExpr("repeat('x', 200000000)").collect()

run_alone(greedy)
"""


def test_a_java_without_memory_ends_the_command_with_its_cause() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, "--memory", "500m", "--cores", "1"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-2:] == [
        "error: Spark's Java process ended: it ran out of memory, of which it had 500m (--memory)",
        "what to do: Give Spark more memory with `--memory`, or free memory of the machine, then run it again. "
        "(spark-ended)",
    ]


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("exit 3", "it ran out of memory, of which it had 2g (--memory)"),
        ("kill -9 $$", "it was killed by signal 9"),
        ("exit 7", "its exit code was 7"),
    ],
)
def test_a_java_that_ends_is_the_cause_of_its_silence(monkeypatch: pytest.MonkeyPatch, end: str, text: str) -> None:
    java = SimpleNamespace(proc=subprocess.Popen(["/bin/sh", "-c", end]))
    monkeypatch.setattr("quire.spark.pipelines.command.SparkContext._gateway", java)

    @click.command(cls=PipelineCommand)
    @click.option("--memory", default="2g")
    def reading(memory: str) -> None:
        raise ConnectionRefusedError

    with pytest.raises(SparkEnded, match=re.escape(f"Spark's Java process ended: {text}")):
        reading.main([], standalone_mode=False)


def test_the_progress_of_a_spark_that_has_ended_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Event()

    def ask() -> None:
        asked.set()
        raise ConnectionRefusedError

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=ask))
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("quire.spark.pipelines.command.INTERVAL", 0.001)
    with live(spark, "reading"):
        assert asked.wait(20)


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_report_without_what_makes_it_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr("quire.spark.pipelines.command.session", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.setitem(sys.modules, missing, None)
    result = CliRunner().invoke(main, ["pipeline", "run", "audit", "--report", "page.html"], catch_exceptions=False)
    assert result.exit_code == 2
    text = f"error: {missing} is not installed, and --report needs it: pip install 'quire[spark,reports]'"
    assert text in result.stderr


def test_without_spark_a_pipeline_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from quire.cli.main import main; main()"
    listed, refused = [
        subprocess.run(
            [sys.executable, "-c", program, "pipeline", "run", *arguments],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )
        for arguments in (["--help"], ["audit", "--drained"])
    ]  # fmt: skip
    assert "Audit a delivery ledger." in listed.stdout
    assert refused.returncode == 2
    assert "is not installed, and pipelines need it: pip install 'quire[spark]'" in refused.stderr


@pytest.mark.parametrize("name", ["archive", "audit", "dead_letters", "latency", "replay"])
def test_a_pipeline_is_a_program_of_its_own(name: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", f"quire.spark.pipelines.{name}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "--parquet DIR" in shown.stdout
    refused = subprocess.run(
        [sys.executable, "-m", f"quire.spark.pipelines.{name}", *(["x"] if name in ("archive", "replay") else []),
         "--store", "lmdb:///x", "--parquet", "y"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "what to do: Correct the argument." in refused.stderr
