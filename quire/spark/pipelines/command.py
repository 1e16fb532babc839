"""What the pipelines' commands have in common: options, a Spark session, errors, results.

While Spark works, they show how many tasks of its stages are done, and how far its streams are.
"""

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import click
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from quire.client.remote import remote_error
from quire.clock import SystemClock
from quire.errors import ERRORS, InvalidArgument, QuireError, SparkEnded
from quire.spark.pipelines.files import time_text
from quire.spark.pipelines.place import DEFAULT_URL, Place
from quire.spark.sessions import register, session
from quire.units import parse_duration, parse_size

INTERVAL = 0.5  # how often Spark is asked, in seconds


@contextmanager
def live(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a line on standard error while the context lasts, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    ended = Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        watcher = Thread(target=_watch, args=(spark, text, bar, ended), name="quire-live")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(spark: SparkSession, text: str, bar: Progress, ended: Event) -> None:
    task = bar.add_task(text, total=None)
    # The thread that waits for Spark reports its end.
    with suppress(ConnectionError, Py4JError):
        while not ended.wait(INTERVAL):
            done, total = _tasks(spark)
            bar.update(task, description=", ".join([text, *_streams(spark)]), completed=done, total=total or None)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    # A stage may end between the two questions.
    running = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)


def _streams(spark: SparkSession) -> list[str]:
    texts = []
    for query in spark.streams.active:
        if progress := query.lastProgress:
            rate = progress.processedRowsPerSecond or 0.0
            texts.append(f"batch {progress.batchId}: {progress.numInputRows} rows, {rate:.0f}/s")
    return texts


_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # ``spark-submit`` sets it for the programs it starts
_OUT_OF_MEMORY = (3, 52)
"""The exit codes of Java without memory: its own (``ExitOnOutOfMemoryError``), and that of Spark's executors."""

_LAST_BREATH = 10.0  # how long Java takes to end after it has closed its connections, in seconds
_TOLD = re.compile(r"^quire\.errors\.[\w.]+: (.+) \[([a-z-]+)\]$", re.MULTILINE)

Command = TypeVar("Command", bound=Callable[..., Any])


class PipelineCommand(click.Command):
    """A command whose errors are Quire's, also those that Spark's workers raise."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if (told := _ended(error, ctx.params) or told_by(error)) is None:
                raise
            raise told from error


def _ended(error: Exception, options: Mapping[str, Any]) -> SparkEnded | None:
    """What ended Spark's Java process, if an error is that it does not answer any more."""
    process = getattr(SparkContext._gateway, "proc", None)
    is_silence = isinstance(error, (ConnectionError, Py4JError)) and not isinstance(error, Py4JJavaError)
    if process is None or not is_silence:
        return None
    try:
        status = process.wait(_LAST_BREATH)
    except subprocess.TimeoutExpired:
        return None
    text = f"it ran out of memory, of which it had {options['memory']} (--memory)"
    if status not in _OUT_OF_MEMORY:
        text = f"it was killed by signal {-status}" if status < 0 else f"its exit code was {status}"
    return SparkEnded(f"Spark's Java process ended: {text}", status=status)


def told_by(error: Exception) -> QuireError | None:
    """Quire's error in the text of a Spark error of a worker; None for any other error."""
    found = _TOLD.search(str(error)) if type(error).__module__.startswith("pyspark.") else None
    if found is None or found[2] not in ERRORS:
        return None
    return remote_error(found[2], found[1].removesuffix(f". {ERRORS[found[2]].advice}"), {})


def duration(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A click callback: a duration, in seconds."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """A click callback: a size, in bytes."""
    try:
        if (found := parse_size(value)) > 0:
            return found
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    raise click.BadParameter("a size is at least one byte")


def _with_packages(_context: click.Context, _option: click.Parameter, page: Path | None) -> Path | None:
    """A click callback: refuse to write a page if a package for it is missing, before Spark begins to work."""
    for name in ("jinja2", "matplotlib") if page else ():
        if importlib.util.find_spec(name) is None:
            text = f"{name} is not installed, and --report needs it: pip install 'quire[spark,reports]'"
            raise InvalidArgument(text, module=name)
    return page


output_option = click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="The format of results.",
)
report_option = click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path),
    callback=_with_packages,
    help="Also write the report as an HTML page to this file.",
)
_cores = click.option(
    "--cores", type=click.IntRange(1), default=2, show_default=True, help="The number of tasks that run at once."
)
_memory = click.option(
    "--memory", metavar="SIZE", default="1g", show_default=True, help="The heap size of Spark on this machine."
)
LOGIN = {"user": "user", "password_file": "passwordFile", "token_file": "bearerTokenFile", "tls_ca": "tlsCa"}
"""The options of a broker's login: as the commands have them, and as the data source does."""

_place_options = (
    click.option(
        "--tls-ca", metavar="FILE",
        help="A file with the authorities to trust with TLS.  [env: QUIRE_TLS_CA; default: the system's]",
    ),
    click.option(
        "--token-file", metavar="FILE",
        help="A file with a token to log in with, instead of a user.  [env: QUIRE_TOKEN, the token]",
    ),
    click.option(
        "--password-file", metavar="FILE", help="A file with the user's password.  [env: QUIRE_PASSWORD_FILE]"
    ),
    click.option("--user", metavar="USER", help="The user to log in to the broker as.  [env: QUIRE_USER]"),
    click.option(
        "--option", "options", metavar="NAME=VALUE", multiple=True, help="An option for the reader. May be repeated."
    ),
    click.option(
        "--parquet", metavar="DIR", help="A directory of Parquet files, such as an archive, instead of --url."
    ),
    click.option("--store", metavar="URL", help="A store, with or without a running broker, instead of --url."),
    click.option("--url", metavar="URL", help=f"A broker's HTTP API.  [env: QUIRE_URL; default: {DEFAULT_URL}]"),
)  # fmt: skip


def spark_options(command: Command) -> Command:
    return _cores(_memory(command))


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where a pipeline reads; the command gets them as its ``place``."""

    @functools.wraps(command)
    def with_place(
        url: str | None, store: str | None, parquet: str | None, options: tuple[str, ...], **others: Any
    ) -> None:
        if not (url or store or parquet):
            url = os.environ.get("QUIRE_URL") or DEFAULT_URL
        login = {option: given for name, option in LOGIN.items() if (given := others.pop(name))}
        command(place=Place(url, store, parquet, pairs(options, "--option"), login), **others)

    for option in _place_options:
        option(with_place)
    return with_place


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, mark, value = text.rpartition("=") if option == "--depth" else text.partition("=")
        if not mark or not name:
            raise InvalidArgument(f"{option} {text!r} is not NAME=VALUE", option=option)
        found[name] = value
    return found


def start_session(name: str, cores: int, memory: str) -> SparkSession:
    """The Spark session of a pipeline: that of ``spark-submit``, or else one on this machine."""
    if _SUBMITTED in os.environ:
        spark = SparkSession.Builder().appName(f"quire {name}").getOrCreate()
        register(spark)
    else:
        # Where a thread of Spark's driver dies for want of memory, its job would wait forever.
        spark = session(
            cores, memory, spark__app__name=f"quire {name}", spark__ui__showConsoleProgress="false",
            spark__driver__extraJavaOptions="-XX:+ExitOnOutOfMemoryError",
        )  # fmt: skip
    # Days begin at midnight, UTC, wherever it runs.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def wait_for(query: StreamingQuery) -> None:
    """Wait until a query has ended; Ctrl-C stops it after its batch, which is no error."""
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


def print_json(result: Mapping[str, object]) -> None:
    click.echo(json.dumps(result, ensure_ascii=False, default=str))


def console() -> Console:
    """Where results are printed; as wide as they need unless it is a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def show(
    found: Any, output: str, print_report: Callable[[Any, Console], None], place: Place, page: Path | None,
    as_page: Callable[[Any, str], str], **more: object,
) -> None:  # fmt: skip
    """Show what was found, a dataclass, in the format that was asked for, and on a page if that was."""
    if page:
        made = time_text(SystemClock().now_ms())
        page.write_text(as_page(found, f"{place}, {made} UTC"), encoding="utf-8")
    if output == "json":
        print_json({**more, **asdict(found)})
    else:
        print_report(found, console())


def run_alone(command: click.Command) -> None:
    """Run a command as a program of its own: errors are printed, and say what to do; the exit code is theirs."""
    try:
        command.main(prog_name=command.name)
    except QuireError as error:
        click.echo(f"error: {error}\nwhat to do: {error.entry.advice} ({error.code})", err=True)
        sys.exit(error.entry.exit)
